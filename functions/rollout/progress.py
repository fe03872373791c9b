"""Tells the controller how far a worker is, a few times a second, beside the decode thread."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from functions.rollout.clock import Clock
from functions.rollout.decoding import Decoding
from functions.rollout.leased_work import LeasedWork
from functions.rollout.seats import Seats
from functions.rollout.tally import Tally
from shared.contracts.call import StageCall
from shared.contracts.completion import Completion
from shared.contracts.errors import StaleFence, StoreRefused, StoreUnavailable
from shared.contracts.rollout import RolloutInputs, RolloutProgress, SequenceProgress
from shared.service.handler import CallContext

REPORT_EVERY_S = 0.25
TELL_FINISHED_S = 5.0
"""How long reports tell of a sequence that has ended: the controller keeps what it has read, and a report of all that
ever ended would grow with the batch."""


class Reporter:
    """Reports on one worker call."""

    def __init__(
        self,
        call: StageCall[RolloutInputs],
        context: CallContext,
        leased: LeasedWork,
        seats: Seats,
        decoding: Decoding,
        tally: Tally,
        *,
        clock: Clock,
    ) -> None:
        self._call = call
        self._context = context
        self._leased = leased
        self._seats = seats
        self._decoding = decoding
        self._tally = tally
        self._clock = clock
        self._num_done = 0
        self._finished: deque[tuple[float, SequenceProgress]] = deque()
        """What has ended lately, and when."""
        self._reported = (clock.elapsed(), 0)
        """When the last report was made, and how many tokens there were."""

    def note_finished(self, completions: Sequence[Completion]) -> None:
        """These have ended."""
        now = self._clock.elapsed()
        self._num_done += len(completions)
        for completion in completions:
            id, num_tokens = completion.id, len(completion.token_ids)
            self._finished.append((now, SequenceProgress(row_uid=id.row_uid, sample=id.sample, num_tokens=num_tokens)))

    async def report_often(self) -> None:
        """Report now and every ``REPORT_EVERY_S``, for as long as this runs."""
        while True:
            await self.report()
            await asyncio.sleep(REPORT_EVERY_S)

    async def report(self) -> None:
        """Report once. A report that is lost is not missed."""
        # Whoever works on with a stale fence hears of it at the next commit.
        with contextlib.suppress(StaleFence, StoreRefused, StoreUnavailable):
            await self._context.store.work.report(
                self._call.key.batch,
                shard=self._call.key.shard,
                fence=self._call.fence,
                progress=self.progress().model_dump_json().encode(),
            )

    def progress(self) -> RolloutProgress:
        """How far the call is now."""
        now, num_tokens = self._clock.elapsed(), self._decoding.num_tokens
        (then, num_before), self._reported = self._reported, (now, num_tokens)
        while self._finished and self._finished[0][0] < now - TELL_FINISHED_S:
            self._finished.popleft()
        running = self._seats.progress()
        num_waiting = self._leased.num_waiting + self._leased.num_queued
        return RolloutProgress(
            shard=self._call.key.shard,
            segment=self._call.key.segment,
            instance=self._context.instance,
            at=self._clock.unix(),
            num_assigned=self._num_done + len(running) + num_waiting,
            num_done=self._num_done,
            num_waiting=num_waiting,
            running=running,
            finished=tuple(sequence for _, sequence in self._finished),
            free_slots=max(0, self._call.inputs.max_num_sequences - len(running) - num_waiting),
            tokens_per_s=(num_tokens - num_before) / (now - then) if now > then else 0.0,
            max_tokens=self._call.inputs.sampling.max_tokens,
            most_migrations=max(self._seats.most_migrations, self._leased.most_migrations),
            context_tokens=self._seats.context_tokens(running),
            kv_bytes_per_token=self._tally.kv_bytes_per_token,
            kv_capacity_tokens=self._tally.kv_capacity_tokens,
        )
