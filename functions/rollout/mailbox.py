"""Messages for a busy worker. It cannot be called, since its one slot is taken; so it looks for them itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum

from shared.contracts.call import BatchKey
from shared.contracts.errors import StoreUnavailable
from shared.service.handler import StopFlag
from shared.store.base import WorkStore

LOOK_EVERY_S = 0.05


class Mail(StrEnum):
    """What a worker can be told."""

    CANCEL = "cancel"
    """Stop; the result is not wanted."""
    CUT = "cut"
    """Stop, and leave the unfinished completions for others."""


@contextlib.asynccontextmanager
async def watch_mail(work: WorkStore, batch: BatchKey, shard: int, interrupt: StopFlag) -> AsyncIterator[None]:
    """Set ``interrupt``, with the message as its reason, when one arrives. Runs beside the decode thread, not on it."""

    async def look() -> None:
        while not interrupt.is_set():
            await asyncio.sleep(LOOK_EVERY_S)
            with contextlib.suppress(StoreUnavailable):
                message = await work.mail(batch, shard=shard)
                if message is not None:
                    interrupt.set(message)

    task = asyncio.create_task(look(), name="mailbox")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
