"""Work that goes on beside a block: heartbeats, renewals, a look at the mail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from shared.service.ending import end_task


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` as long as the block runs. What it failed with is raised at the block's end, never in its middle.

    An error of the block itself comes first: it is not hidden by one of the work.
    """
    task = asyncio.create_task(work)
    try:
        yield
    except BaseException:
        await end_task(task)
        raise
    failure = await end_task(task)
    if failure is not None:
        raise failure
