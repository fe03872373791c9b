"""Rollouts that go on for long, for the tests of what ends them."""

import asyncio
from collections.abc import Awaitable, Callable

from shared.contracts.rollout import Sampling
from tests.unit.functions.rollout.batch_world import BatchWorld
from tests.unit.functions.rollout.fake_engine import FakeEngine

SHORT = 2
LONG = Sampling(temperature=1.0, max_tokens=500, eos_token_ids=(1,))


def long_engine(world: BatchWorld) -> FakeEngine:
    """The first sample of each row is short, the others go on for long."""
    return FakeEngine(lengths={(row, 0): SHORT for row in world.rows}, default_length=4000)


def after_steps(engine: FakeEngine, num_steps: int, act: Callable[[], Awaitable[None]]) -> None:
    """Do something on the loop once the engine has made so many steps, and let it step on slowly from then on."""
    loop = asyncio.get_running_loop()

    async def awaited() -> None:
        await act()

    def look() -> None:
        if engine.num_steps == num_steps:
            asyncio.run_coroutine_threadsafe(awaited(), loop).result(10)
            engine.step_s = 0.005

    engine.on_step = look
