"""How a task is ended for sure."""

import asyncio
from typing import Any

ASK_AGAIN_S = 0.5


async def end_task(task: asyncio.Task[Any]) -> BaseException | None:
    """Cancel the task and wait until it is over; returns what it failed with, if it did.

    It is asked again and again: a library that is cancelled in the middle of a reply may report a lost connection in
    place of the cancellation, and a loop that outlives lost connections would then go on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=ASK_AGAIN_S)
    return None if task.cancelled() else task.exception()
