"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing is left to do.

Everything that waits by asyncio (sleep, timeouts, conditions) waits in this time, so an hour of a simulated run costs
what its decisions cost, and the order of events depends on nothing but their times.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = 1_700_000_000.0
"""Unix time at which virtual time begins."""
WEEK_S = 7 * 24 * 3600.0


class VirtualTimeStopped(RuntimeError):
    """Every task waits for another and no timer is set: nothing can happen any more."""


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: the time that the loop is willing to wait passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise VirtualTimeStopped("every task waits for another one: no timer is set that could end it")
        self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. It starts at 0 (``EPOCH`` as Unix time)."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._virtual.now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run the function at once. In a thread it would take real time, while virtual time runs away."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def virtual_now() -> float:
    """Unix time of the running loop, in virtual time."""
    return EPOCH + asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, T], *, limit_s: float = WEEK_S) -> T:
    """Run a coroutine in virtual time, from its beginning. Raises ``TimeoutError`` after ``limit_s`` of it."""

    async def limited() -> T:
        async with asyncio.timeout(limit_s):
            return await main

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(limited())
