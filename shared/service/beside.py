"""Work that goes on beside a block: heartbeats, renewals, a look at the mail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` as long as the block runs. What it failed with is raised at the block's end, never in its middle.

    An error of the block itself comes first: it is not hidden by one of the work.
    """
    task = asyncio.create_task(work)
    try:
        yield
    except BaseException:
        await _end(task)
        raise
    failure = await _end(task)
    if failure is not None:
        raise failure


async def _end(task: asyncio.Task[None]) -> BaseException | None:
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()
