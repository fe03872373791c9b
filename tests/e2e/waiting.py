"""Wait for something that is bound to happen."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""Far longer than anything here takes, also on a machine that is busy with other things."""
LOOK_EVERY_S = 0.02


def wait_until(happened: Callable[[], T], *, timeout_s: float = PATIENCE_S, what: str = "") -> T:
    """The first true value of ``happened``. Fails the test if there is none in time."""
    until = time.monotonic() + timeout_s
    while True:
        value = happened()
        if value:
            return value
        assert time.monotonic() < until, f"waited {timeout_s:g} s in vain for {what or happened}"
        time.sleep(LOOK_EVERY_S)


async def wait_until_async(happened: Callable[[], Awaitable[T]], *, timeout_s: float = PATIENCE_S, what: str = "") -> T:
    """As ``wait_until``, on an event loop."""
    until = time.monotonic() + timeout_s
    while True:
        value = await happened()
        if value:
            return value
        assert time.monotonic() < until, f"waited {timeout_s:g} s in vain for {what or happened}"
        await asyncio.sleep(LOOK_EVERY_S)
