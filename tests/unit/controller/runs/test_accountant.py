"""A run's ledger, window after window."""

import asyncio

import pytest

from controller.platforms.simulated.function_spec import FunctionSpec
from controller.platforms.simulated.platform import SimulatedPlatform
from controller.runs.accountant import Accountant
from controller.runs.ledger import Price
from shared.contracts.stage import Stage
from shared.observability.metrics import REPLICA_SECONDS
from tests.fakes.virtual import in_virtual_time

PRICE = Price(cpu_hour_usd=36.0, gpu_hour_usd=0.0)


def platform() -> SimulatedPlatform:
    spec = FunctionSpec(name="accounted", stages=(Stage.ROLLOUT,), cold_start_s=3.0, num_cpus=2.0)
    return SimulatedPlatform([spec], {})


@in_virtual_time
async def test_windows_follow_each_other_without_a_gap() -> None:
    functions = platform()
    await functions.scale(Stage.ROLLOUT, 1, hold_until=functions.now() + 1000)
    await asyncio.sleep(1)
    accountant = Accountant(functions, PRICE)
    await asyncio.sleep(4)
    first = (await accountant.close_window("init", []))["accounted"]
    assert (first["cold_s"], first["idle_s"], first["purpose"]) == (2.0, 2.0, "init")
    assert first["usd"] == pytest.approx(4 * 2 * 36 / 3600)
    await asyncio.sleep(10)
    second = (await accountant.close_window("train", []))["accounted"]
    assert (second["cold_s"], second["idle_s"], second["purpose"]) == (0.0, 10.0, "train")
    assert await accountant.close_window("train", []) == {}, "no time has passed"


@in_virtual_time
async def test_replica_seconds_are_counted_as_a_metric() -> None:
    def counted(kind: str) -> float:
        return REPLICA_SECONDS.labels("accounted", kind)._value.get()

    before = counted("idle"), counted("cold")
    functions = platform()
    accountant = Accountant(functions, PRICE)
    await functions.scale(Stage.ROLLOUT, 2, hold_until=functions.now() + 1000)
    await asyncio.sleep(10)
    await accountant.close_window("train", [])
    assert (counted("idle") - before[0], counted("cold") - before[1]) == (14.0, 6.0)
