"""Stages that do not need each other: at the same time, or one after another where they share their cores.

Each is timed by itself, from its turn on, under the name that verl has for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Group:
    """Coroutines that are started within ``beside``."""

    def __init__(self, tasks: asyncio.TaskGroup, clock: Callable[[], float], *, at_once: bool) -> None:
        self._tasks = tasks
        self._clock = clock
        self._turn = nullcontext() if at_once else asyncio.Lock()
        self.timings_s: dict[str, float] = {}
        """Seconds by name, of what has ended."""

    def start(
        self, name: str, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **named: P.kwargs
    ) -> asyncio.Task[T]:
        """Run the function and time it; its result is there when ``beside`` has ended."""

        async def run() -> T:
            # A lock is taken in the order of asking.
            async with self._turn:
                began_at = self._clock()
                result = await function(*arguments, **named)
                self.timings_s[name] = self._clock() - began_at
                return result

        return self._tasks.create_task(run())


@asynccontextmanager
async def beside(clock: Callable[[], float], *, at_once: bool) -> AsyncIterator[Group]:
    """Leaves when all that was started has ended. The first failure ends the others and is raised as itself.

    ``clock`` says the time in seconds.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield Group(tasks, clock, at_once=at_once)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
