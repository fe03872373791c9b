"""The items in a worker's hands: which of their samples are open, and which of these wait for a place in the engine."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from functions.rollout.engine import GeneratedTokens, SequenceRequest
from functions.rollout.leftovers import parts_for
from functions.rollout.seats import Waiting
from shared.codec.completions import DamagedCompletion, Partial, decode_partial
from shared.contracts.call import StageCall
from shared.contracts.completion import SampleId, num_migrations
from shared.contracts.errors import InvalidInput, PoisonedItem, StoreRefused, StoreUnavailable
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, WorkItem
from shared.contracts.rollout_mail import Taker
from shared.modeling.randomness import address_seed
from shared.service.handler import CallContext

log = logging.getLogger(__name__)

LEASE_TTL_S = 6.0
RENEW_EVERY_S = 2.0
FINISH_AT_ONCE = 4
"""Each takes a connection of its own, and a new replica has to open them first."""
MAX_DELIVERIES = 3
"""After so many workers died with an item, the item is to blame."""


class LeasedWork:
    """What one worker call has leased and not given back."""

    def __init__(self, call: StageCall[RolloutInputs], prompts: Mapping[str, Prompt], context: CallContext) -> None:
        self._call = call
        self._batch = call.key.batch
        self._prompts = prompts
        self._context = context
        self._work = context.store.work
        self._open: dict[WorkItem, set[SampleId]] = {}
        """Leased items, with their samples that are not committed yet."""
        self._waiting: deque[Waiting] = deque()
        self._num_queued = 0
        self.num_resumed = 0
        self.num_migrated_in = 0

    @property
    def num_waiting(self) -> int:
        """Samples that are not in the engine yet."""
        return len(self._waiting)

    @property
    def num_queued(self) -> int:
        """Samples that waited in the store for this worker when it last looked."""
        return self._num_queued * self._call.inputs.num_samples

    @property
    def most_migrations(self) -> int:
        """Of the samples that are not in the engine yet."""
        return max((num_migrations(sample.stays) for sample in self._waiting), default=0)

    async def lease(self, num_sequences: int) -> bool:
        """Take items for so many sequences. False if there were none.

        Raises ``PoisonedItem``, ``StaleFence``, and ``InvalidInput`` for an item of an unknown row.
        """
        lease = await self._work.lease(
            self._batch,
            shard=self._call.key.shard,
            owner=self._context.owner,
            fence=self._call.fence,
            ttl_s=LEASE_TTL_S,
            max_items=-(-num_sequences // self._call.inputs.num_samples),
            max_deliveries=MAX_DELIVERIES,
        )
        self._num_queued = lease.num_queued
        if lease.poisoned is not None:
            raise PoisonedItem(
                f"the worker died {MAX_DELIVERIES} times on row {lease.poisoned.row_uid}: remove the row, or give "
                "the function more memory, then resume the run",
                row_uid=lease.poisoned.row_uid,
            )
        if not lease.items:
            return False
        # Where the store was away for longer than a lease, others may have taken what is still in hand, and left it.
        in_hand = {id for left in self._open.values() for id in left}
        leased = {
            each.item: [SampleId(each.item.row_uid, sample) for sample in each.item.samples] for each in lease.items
        }
        self._open |= {item: set(ids) for item, ids in leased.items()}
        ids = [id for some in leased.values() for id in some if id not in in_hand]
        done, partials = await asyncio.gather(
            self._work.committed(self._batch, ids), self._work.partials(self._batch, ids)
        )
        self._waiting += [self._sample(id, partials.get(id)) for id in ids if id not in done]
        await self.note_committed(done)
        return True

    def take(self, max_sequences: int) -> list[Waiting]:
        """Waiting samples for the engine, in order."""
        taken = [self._waiting.popleft() for _ in range(min(max_sequences, len(self._waiting)))]
        for sample in taken:
            self.num_resumed += bool(sample.request.generated.token_ids)
            self.num_migrated_in += bool(sample.stays) and sample.stays[-1].instance != self._context.instance
        return taken

    async def note_committed(self, ids: Collection[SampleId]) -> None:
        """These samples are stored; the items that have no other are done."""
        for left in self._open.values():
            left.difference_update(ids)
        done = [item for item, left in self._open.items() if not left]
        for item in done:
            del self._open[item]
        for start in range(0, len(done), FINISH_AT_ONCE):
            some = done[start : start + FINISH_AT_ONCE]
            await asyncio.gather(
                *(self._work.finish_item(self._batch, owner=self._context.owner, item=item) for item in some)
            )

    async def give_back(self) -> None:
        """Offer all unfinished items again."""
        self._waiting.clear()
        while self._open:
            item, _ = self._open.popitem()
            await self._work.return_item(self._batch, owner=self._context.owner, item=item)

    async def hand_on(self, takers: Sequence[Taker]) -> set[int | None]:
        """Leave all unfinished samples to these actors. Returns who has got some (``None``: offered to all)."""
        self._waiting.clear()
        parts = parts_for(self._open, takers)
        self._open.clear()
        for item, some in parts.items():
            await self._work.return_item(self._batch, owner=self._context.owner, item=item, parts=some)
        return {part.shard for some in parts.values() for part in some}

    async def renew(self) -> None:
        """Keep the leases, for as long as this runs."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            with contextlib.suppress(StoreUnavailable, StoreRefused):
                await self._work.renew_leases(self._batch, owner=self._context.owner, ttl_s=LEASE_TTL_S)

    def _sample(self, id: SampleId, partial: bytes | None) -> Waiting:
        prompt = self._prompts.get(id.row_uid)
        if prompt is None:
            raise InvalidInput(f"row {id.row_uid} is queued but not among the batch's prompts", row_uid=id.row_uid)
        seed = address_seed(
            self._call.inputs.run_seed, self._batch.purpose, self._batch.step, self._batch.round, id.row_uid, id.sample
        )
        saved = None if partial is None else _decoded(id, partial)
        request = SequenceRequest(
            row_uid=id.row_uid,
            sample=id.sample,
            prompt_token_ids=prompt.token_ids,
            seed=seed,
            generated=GeneratedTokens() if saved is None else _tokens_of(saved),
        )
        return (
            Waiting(request=request)
            if saved is None
            else Waiting(request=request, stays=saved.stays, has_kv=saved.has_kv)
        )


def _decoded(id: SampleId, partial: bytes) -> Partial | None:
    try:
        return decode_partial(partial)
    except DamagedCompletion as error:
        # Sampled again from its address, the completion is the same.
        log.warning("the saved part of %s is left out: %s", id, error)
        return None


def _tokens_of(saved: Partial) -> GeneratedTokens:
    return GeneratedTokens(
        token_ids=tuple(saved.token_ids.tolist()),
        logprobs=tuple(saved.rollout_logprobs.tolist()),
        processed_logprobs=tuple(saved.processed_logprobs.tolist()),
        loss_mask=tuple(saved.loss_mask.tolist()),
    )
