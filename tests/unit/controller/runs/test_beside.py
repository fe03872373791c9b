import asyncio

import pytest

from controller.platforms.simulated.clock import virtual_now
from controller.runs.beside import beside
from tests.fakes.virtual import in_virtual_time


async def _work(name: str, duration_s: float, log: list[str]) -> str:
    log.append(f"{name} begins")
    await asyncio.sleep(duration_s)
    log.append(f"{name} ends")
    return name


@in_virtual_time
@pytest.mark.parametrize(("at_once", "took_s"), [(True, 3.0), (False, 6.0)])
async def test_all_results_are_there_at_once_or_one_after_another(at_once: bool, took_s: float) -> None:
    log: list[str] = []
    began_at = asyncio.get_running_loop().time()
    async with beside(virtual_now, at_once=at_once) as group:
        tasks = [
            group.start(name, _work, name, duration, log) for name, duration in (("a", 3.0), ("b", 1.0), ("c", 2.0))
        ]
    assert [task.result() for task in tasks] == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() - began_at == took_s
    assert group.timings_s == pytest.approx({"a": 3.0, "b": 1.0, "c": 2.0}), "none has waited for its turn in its time"
    if not at_once:
        assert log == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


@in_virtual_time
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_first_failure_ends_the_others_and_is_raised_as_itself(at_once: bool) -> None:
    log: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("lost")

    async def run_both() -> None:
        async with beside(virtual_now, at_once=at_once) as group:
            group.start("failing", fail)
            group.start("slow", _work, "slow", 5.0, log)

    with pytest.raises(KeyError, match="lost"):
        await run_both()
    assert "slow ends" not in log
