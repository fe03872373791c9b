"""Messages for a busy worker. It cannot be called, since its one slot is taken; so it looks for them itself."""

import asyncio
import contextlib
import logging

from pydantic import ValidationError

from shared.contracts.call import StageCall
from shared.contracts.errors import StoreUnavailable
from shared.contracts.rollout import RolloutInputs
from shared.contracts.rollout_mail import MailKind, RolloutMail
from shared.service.stop_flag import StopFlag
from shared.store.base import WorkStore

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.05


class Mailbox:
    """What one worker call is told while it works."""

    def __init__(self, work: WorkStore, call: StageCall[RolloutInputs]) -> None:
        self._work = work
        self._call = call
        self._next = 0
        self._is_told_of_work = False
        self.interrupt = StopFlag()
        """Set when a message ends the call, with its kind as the reason."""
        self.ending: RolloutMail | None = None
        """The message that ends the call."""

    async def watch(self) -> None:
        """Look for messages until one ends the call. Runs beside the decode thread, not on it."""
        while not self.interrupt.is_set():
            messages: tuple[str, ...] = ()
            with contextlib.suppress(StoreUnavailable):
                mail = await self._work.mail(self._call.key.batch, shard=self._call.key.shard, after=self._next)
                messages, self._next = mail.messages, mail.next
            for message in messages:
                self._open(message)
            await asyncio.sleep(LOOK_EVERY_S)

    def take_nudge(self) -> bool:
        """Whether somebody said since the last time that there may be work."""
        told, self._is_told_of_work = self._is_told_of_work, False
        return told

    def _open(self, message: str) -> None:
        try:
            mail = RolloutMail.model_validate_json(message)
        except ValidationError:
            # From a newer controller, say. Decoding on is always right, if not always quick.
            key = self._call.key
            log.warning("unknown message %.200r", message, extra={"run": key.run, "step": key.step})
            return
        if mail.fence != self._call.fence or mail.segment not in (None, self._call.key.segment):
            return
        if mail.kind is MailKind.WORK:
            self._is_told_of_work = True
        elif self.ending is None:
            self.ending = mail
            self.interrupt.set(mail.kind)
