"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing is left to do.

Everything that waits by asyncio (sleep, timeouts, conditions) waits in this time, so an hour of a simulated run costs
what its decisions cost, and the order of events depends on nothing but their times.

What computes on a thread says how long it takes (``spend``): to itself the clock goes on, and to everybody else its
result is there that much later.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

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
        self._ahead_s = 0.0
        """What the computation in progress has spent."""
        self._busy_until: WeakKeyDictionary[Executor, float] = WeakKeyDictionary()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds of virtual time since the loop was made; within a computation, what it has spent included."""
        return self._virtual.now + self._ahead_s

    def spend(self, duration_s: float) -> None:
        """See the function ``spend``."""
        self._ahead_s += duration_s

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run the function here, for in a thread it would take real time while virtual time runs away.

        Its result comes after the time that it spends. An executor stands for one thread: it takes one function after
        the other.
        """
        future: asyncio.Future[T] = self.create_future()
        free_at = self._busy_until.get(executor, 0.0) if executor is not None else 0.0
        if executor is not None and free_at > self.time():
            self.call_at(free_at, self._run_when_free, executor, future, func, *args)
        else:
            self._compute(executor, future, func, *args)
        return future

    def _run_when_free(
        self, executor: Executor, future: asyncio.Future[T], func: Callable[[*Ts], T], *args: *Ts
    ) -> None:
        if future.cancelled():
            return
        if (free_at := self._busy_until.get(executor, 0.0)) > self.time():
            self.call_at(free_at, self._run_when_free, executor, future, func, *args)
        else:
            self._compute(executor, future, func, *args)

    def _compute(
        self, executor: Executor | None, future: asyncio.Future[T], func: Callable[[*Ts], T], *args: *Ts
    ) -> None:
        settle: Callable[[], None]
        try:
            settle = partial(future.set_result, func(*args))
        except Exception as error:
            settle = partial(future.set_exception, error)
        spent_s, self._ahead_s = self._ahead_s, 0.0
        if executor is not None:
            self._busy_until[executor] = self.time() + spent_s
        if spent_s > 0:
            self.call_later(spent_s, lambda: None if future.cancelled() else settle())
        else:
            settle()


def spend(duration_s: float) -> None:
    """Let a computation take so long: for functions that run on an executor of a ``VirtualTimeLoop``."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        raise RuntimeError("only virtual time can be spent: run in run_virtual")
    loop.spend(duration_s)


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
