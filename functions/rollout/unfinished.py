"""What a worker call leaves behind when it ends before its work does, so that others can go on with it."""

import logging
from dataclasses import dataclass

from functions.rollout.clock import Clock
from functions.rollout.commits import CommitQueue
from functions.rollout.completing import partial_of
from functions.rollout.engine import Engine
from functions.rollout.leased_work import LeasedWork
from functions.rollout.prefixes import Prefixes
from functions.rollout.seats import Seats
from functions.rollout.tally import Tally
from shared.codec.completions import encode_partial
from shared.contracts.call import StageCall
from shared.contracts.completion import SampleId
from shared.contracts.errors import StoreUnavailable
from shared.contracts.rollout import RolloutInputs
from shared.contracts.rollout_mail import MailKind, RolloutMail
from shared.service.handler import CallContext

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """The sequences and items in one worker's hands, seen from its end."""

    call: StageCall[RolloutInputs]
    context: CallContext
    engine: Engine
    leased: LeasedWork
    seats: Seats
    prefixes: Prefixes
    tally: Tally
    clock: Clock

    async def leave(self, ending: RolloutMail | None) -> None:
        """Save the tokens of unfinished sequences, then offer their items again, or hand them on as a cut says."""
        work, batch, fence = self.context.store.work, self.call.key.batch, self.call.fence
        is_cut = ending is not None and ending.kind is MailKind.CUT
        has_kv = bool(is_cut and ending and ending.with_kv) and await self.prefixes.store(self.seats.ids())
        partials = [partial for partial in await self.context.compute(self.engine.abort) if partial.token_ids]
        now = self.clock.unix()
        stored = {}
        for partial in partials:
            id = SampleId(partial.row_uid, partial.sample)
            stays = self.seats.leave(id, num_tokens=len(partial.token_ids), now=now)
            stored[id] = encode_partial(partial_of(partial, stays, has_kv=has_kv))
        self.seats.clear()
        await work.save_partials(batch, fence=fence, partials=stored)
        if ending is None or not is_cut:
            await self.leased.give_back()
            return
        self.tally.num_migrated_out = len(stored)
        for shard in await self.leased.hand_on(ending.takers):
            word = RolloutMail(kind=MailKind.WORK, fence=fence)
            await work.post(batch, shard=shard, message=word.model_dump_json())

    async def abandon(self, commits: CommitQueue, error: BaseException) -> None:
        """After a failure: an engine without sequences, and items that others need not wait for.

        It never hides the failure by another one.
        """
        try:
            await commits.drop()
            await self.context.compute(self.engine.abort)
            await self.context.compute(self.engine.drop_prefixes)
            # A lost store is not waited for again: the leases end by themselves.
            if not isinstance(error, StoreUnavailable):
                await self.leased.give_back()
        except Exception:
            log.warning("a failed call of %s left something behind", self.call.key, exc_info=True)
