"""Waiting in tests for something that happens elsewhere, as the end of a process."""

import asyncio
from collections.abc import Awaitable, Callable

import psutil

LIMIT_S = 60.0


async def until(condition: Callable[[], bool | Awaitable[bool]], *, limit_s: float = LIMIT_S) -> None:
    """Return when the condition holds; fail after ``limit_s``, which no healthy run comes near."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert loop.time() < deadline, "the condition did not come to hold"
        await asyncio.sleep(0.005)


def runs(pid: int) -> bool:
    """Whether a process still runs. One that waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
