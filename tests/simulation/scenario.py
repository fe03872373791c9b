"""Scenarios drawn from a seed: a cluster, and what goes wrong on it at which time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from controller.platforms.base import PlatformReply
from controller.platforms.simulated.function_spec import FunctionSpec, ReplicaView, StageFunction
from shared.contracts.stage import Stage
from tests.fakes.scripted import plain
from tests.fakes.stack import Controller, Stack
from tests.fakes.world import SPECS

HORIZON_S = 60.0
"""Faults come before this time; the runs are longer or shorter."""
PLATFORM_ANSWERS = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a seed stands for."""

    specs: tuple[FunctionSpec, ...]
    s_per_token: float
    num_actors: int
    error_rate: float
    """Share of calls whose answer is lost or replaced by the platform's."""
    faults: tuple[tuple[float, str], ...]
    """(time, kind), in order of time."""


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed; the same on every machine."""
    noise = Random(seed)
    specs = tuple(
        replace(
            spec,
            cold_start_s=noise.choice([0.5, 3.0, 9.0]),
            window_s=noise.choice([1.0, 6.0, 30.0]),
            drain_s=noise.choice([0.0, 2.0]),
        )
        for spec in SPECS
    )
    kinds = [
        "kill",
        "kill",
        "kill silently",
        "outage",
        "stop controller",
        "kill controller",
        "add controller",
        "cancel",
    ]
    faults = tuple(
        sorted((round(noise.uniform(1.0, HORIZON_S), 2), noise.choice(kinds)) for _ in range(noise.randint(1, 6)))
    )
    return Scenario(
        specs=specs,
        s_per_token=noise.choice([0.1, 0.3, 1.0]),
        num_actors=noise.randint(1, 4),
        error_rate=noise.choice([0.0, 0.1, 0.25]),
        faults=faults,
    )


class Flaky:
    """A function behind a network that loses calls and answers."""

    def __init__(self, function: StageFunction, noise: Random, rate: float) -> None:
        self._function = function
        self._noise = noise
        self._rate = rate

    async def __call__(self, path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
        """The function's answer, or the platform's: before the work or after it."""
        fate = self._noise.random()
        if fate < self._rate / 2:
            return plain(self._noise.choice(PLATFORM_ANSWERS))
        reply = await self._function(path, body, headers, replica)
        return plain(502) if fate < self._rate else reply


def flaky_functions(seed: int, rate: float) -> dict[Stage, Callable[[StageFunction], Flaky]]:
    """For ``make_stack``: every stage behind such a network."""

    def wrap(stage: Stage) -> Callable[[StageFunction], Flaky]:
        return lambda function: Flaky(function, Random(f"{seed}/{stage}"), rate)

    return {spec.stages[0]: wrap(spec.stages[0]) for spec in SPECS}


class Misfortune:
    """Brings a scenario's faults upon a stack."""

    def __init__(self, stack: Stack, run: str, seed: int) -> None:
        self._stack = stack
        self._run = run
        self._noise = Random(f"{seed}/targets")
        self.suffered: list[str] = []

    async def strike(self, faults: tuple[tuple[float, str], ...]) -> None:
        """All faults at their times; something is always left that can go on."""
        now = 0.0
        for at, kind in faults:
            await asyncio.sleep(at - now)
            now = at
            await self._acts()[kind]()
            self.suffered.append(f"{kind} at {at}")

    def _acts(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        return {
            "kill": lambda: self._kill(answered=True),
            "kill silently": lambda: self._kill(answered=False),
            "outage": self._outage,
            "stop controller": lambda: self._end_controller(Controller.stop),
            "kill controller": lambda: self._end_controller(Controller.kill),
            "add controller": self._stack.start,
            "cancel": self._cancel,
        }

    async def _kill(self, *, answered: bool) -> None:
        living = [life.instance for life in await self._stack.platform.replicas() if life.ended_at is None]
        if living:
            self._stack.platform.kill(self._noise.choice(living), answered=answered)

    async def _outage(self) -> None:
        self._stack.outage.is_on = True
        asyncio.get_running_loop().call_later(self._noise.uniform(0.1, 4.0), self._end_outage)

    def _end_outage(self) -> None:
        self._stack.outage.is_on = False

    async def _end_controller(self, end: Callable[[Controller], Awaitable[None]]) -> None:
        victim = self._noise.choice([each for each in self._stack.controllers if not each.task.done()])
        await end(victim)
        await self._stack.start()

    async def _cancel(self) -> None:
        await self._stack.store.runs.request_cancel(self._run)
