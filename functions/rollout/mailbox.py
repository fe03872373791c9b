"""Messages for a busy worker. It cannot be called, since its one slot is taken; so it looks for them itself."""

import asyncio
import contextlib
import logging
from enum import StrEnum

from shared.contracts.call import BatchKey
from shared.contracts.errors import StoreUnavailable
from shared.service.stop_flag import StopFlag
from shared.store.base import WorkStore

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.05


class Mail(StrEnum):
    """What a worker can be told."""

    CANCEL = "cancel"
    """Stop; the result is not wanted."""
    CUT = "cut"
    """Stop, and leave the unfinished completions for others."""


async def watch_mail(work: WorkStore, batch: BatchKey, shard: int, interrupt: StopFlag) -> None:
    """Set ``interrupt``, with the message as its reason, when one arrives. Runs beside the decode thread, not on it."""
    warned_of: str | None = None
    while not interrupt.is_set():
        message: str | None = None
        with contextlib.suppress(StoreUnavailable):
            message = await work.mail(batch, shard=shard)
        match message:
            case Mail.CANCEL | Mail.CUT:
                interrupt.set(message)
            case str() if message != warned_of:
                # From a newer controller, say. Decoding on is always right, if not always quick.
                log.warning("unknown message %r", message, extra={"run": batch.run, "step": batch.step})
                warned_of = message
        await asyncio.sleep(LOOK_EVERY_S)
