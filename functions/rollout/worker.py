"""One worker call: lease items, decode, commit each completion as it ends, until no work is left (DESIGN, rule 6).

    lease items ─▶ waiting sequences ─▶ engine ─▶ finished ─▶ commit each ─▶ item done
         ▲                                 │ deadline, cut, cancel
         └──────── return items ◀── save partial completions

Decoding runs on the compute thread in short bursts; leases, commits, heartbeats and mail run on the event loop
beside it.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence

import numpy as np

from functions.rollout.engine import Engine, FinishedSequence, SamplingParams, SequenceRequest
from functions.rollout.mailbox import Mail, watch_mail
from shared.codec.completions import decode_partial, encode_completion, encode_partial
from shared.contracts.call import StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import Cancelled, InvalidInput, PoisonedItem, StoreUnavailable
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, WorkItem
from shared.modeling.randomness import address_seed
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext, Outcome, StopFlag

LEASE_TTL_S = 6.0
RENEW_EVERY_S = 2.0
MAX_DELIVERIES = 3
"""After so many workers died with an item, the item is to blame."""
BURST_S = 0.05
"""Longest stretch of decoding between two looks at the event loop."""
SAVE_S = 1.0
"""Kept free before the deadline for saving what is unfinished."""


class RolloutWorker:
    """The state of one worker call."""

    def __init__(
        self,
        call: StageCall[RolloutInputs],
        policy: PolicyRef,
        prompts: Mapping[str, Prompt],
        engine: Engine,
        context: CallContext,
    ) -> None:
        self._call = call
        self._policy = policy
        self._prompts = prompts
        self._engine = engine
        self._context = context
        self._work = context.store.work
        self._batch = call.key.batch
        sampling = call.inputs.sampling
        self._params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_tokens=sampling.min_tokens,
            max_tokens=sampling.max_tokens,
            eos_token_ids=() if sampling.ignore_eos else sampling.eos_token_ids,
        )
        self._interrupt = StopFlag()
        self._waiting: deque[SequenceRequest] = deque()
        self._items: dict[WorkItem, set[SampleId]] = {}
        """Leased items, with their samples that are not committed yet."""
        self._started_at: dict[SampleId, float] = {}
        self._commits: set[asyncio.Task[None]] = set()
        self._num_completions = self._num_tokens = self._num_resumed = 0

    async def run(self) -> Outcome[RolloutOutputs]:
        """Work until nothing is left, or until the deadline or a message ends it. Raises ``PoisonedItem``."""
        try:
            async with (
                watch_mail(self._work, self._batch, self._call.key.shard, self._interrupt),
                self._renewed_leases(),
            ):
                finished = await self._work_off()
                await self._settle_commits()
                if not finished:
                    await self._leave_unfinished()
        except BaseException:
            await self._abandon()
            raise
        cancelled = self._context.stop.is_set() or self._interrupt.reason == Mail.CANCEL
        if not finished and cancelled:
            raise Cancelled("the rollout was cancelled; finished completions are kept")
        return Outcome(
            outputs=RolloutOutputs(
                num_completions=self._num_completions,
                num_tokens=self._num_tokens,
                num_resumed=self._num_resumed,
            ),
            status="done" if finished or self._interrupt.is_set() else "continue",
            policy_version=self._policy.version,
            weights_digest=self._policy.digest,
        )

    async def _work_off(self) -> bool:
        """Lease and decode. True when no work is left, False when something ended it before."""
        work_left = True
        while True:
            if self._must_stop():
                return False
            room = self._call.inputs.max_num_sequences - self._engine.num_running
            if work_left and room > 0 and not self._waiting:
                work_left = await self._lease(room)
            if self._waiting and room > 0:
                added = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
                with self._context.watch.measure("compute"):
                    await self._context.compute(self._add, added)
            if self._engine.num_running == 0:
                if not work_left and not self._waiting:
                    return True
                continue
            with self._context.watch.measure("compute"):
                finished = await self._context.compute(self._burst)
            if finished:
                self._start_commit(finished)

    def _must_stop(self) -> bool:
        return self._context.stop.is_set() or self._interrupt.is_set() or self._context.remaining_s() < SAVE_S

    def _add(self, requests: Sequence[SequenceRequest]) -> None:
        use_threads(self._call.threads)
        self._engine.add(requests, self._params)

    def _burst(self) -> list[FinishedSequence]:
        """Decode on the compute thread until a while has passed or there is reason to look up."""
        use_threads(self._call.threads)
        finished: list[FinishedSequence] = []
        until = time.monotonic() + BURST_S
        while self._engine.num_running > 0 and time.monotonic() < until and not self._must_stop():
            finished += self._engine.step()
        return finished

    async def _lease(self, room: int) -> bool:
        """Take items for so many sequences. False if there were none."""
        lease = await self._work.lease(
            self._batch,
            shard=self._call.key.shard,
            owner=self._context.owner,
            fence=self._call.fence,
            ttl_s=LEASE_TTL_S,
            max_items=-(-room // self._call.inputs.num_samples),
            max_deliveries=MAX_DELIVERIES,
        )
        items = [leased.item for leased in lease.items]
        ids = [SampleId(item.row_uid, sample) for item in items for sample in item.samples]
        for item in items:
            self._items[item] = {SampleId(item.row_uid, sample) for sample in item.samples}
        if lease.poisoned is not None:
            raise PoisonedItem(
                f"the worker died {MAX_DELIVERIES} times on row {lease.poisoned.row_uid}: remove the row, or give "
                "the function more memory, then resume the run",
                row_uid=lease.poisoned.row_uid,
            )
        if not ids:
            return False
        done = await self._work.committed(self._batch, ids)
        partials = await self._work.partials(self._batch, ids)
        for item in items:
            self._items[item] -= done
            if not self._items[item]:
                await self._finish(item)
        self._waiting += [self._request(id, partials.get(id)) for id in ids if id not in done]
        return True

    def _request(self, id: SampleId, partial: bytes | None) -> SequenceRequest:
        prompt = self._prompts.get(id.row_uid)
        if prompt is None:
            raise InvalidInput(f"row {id.row_uid} is queued but not among the batch's prompts")
        seed = address_seed(
            self._call.inputs.run_seed,
            self._batch.purpose,
            self._batch.step,
            self._batch.round,
            id.row_uid,
            id.sample,
        )
        self._started_at[id] = time.time()
        saved = decode_partial(partial) if partial is not None else None
        self._num_resumed += saved is not None
        return SequenceRequest(
            row_uid=id.row_uid,
            sample=id.sample,
            prompt_token_ids=prompt.token_ids,
            seed=seed,
            generated_token_ids=tuple(saved.token_ids.tolist()) if saved else (),
            generated_logprobs=tuple(saved.rollout_logprobs.tolist()) if saved else (),
        )

    def _start_commit(self, finished: Sequence[FinishedSequence]) -> None:
        """Store completions while decoding goes on."""
        task = asyncio.create_task(self._commit(finished))
        self._commits.add(task)
        task.add_done_callback(lambda ended: self._commits.discard(ended) if not ended.cancelled() else None)

    async def _commit(self, finished: Sequence[FinishedSequence]) -> None:
        completions = [self._completion(sequence) for sequence in finished]
        await self._work.commit_samples(
            self._batch,
            fence=self._call.fence,
            samples={completion.id: encode_completion(completion) for completion in completions},
        )
        self._num_completions += len(completions)
        self._num_tokens += sum(len(completion.token_ids) for completion in completions)
        done = {completion.id for completion in completions}
        for item in [item for item, left in self._items.items() if left & done]:
            self._items[item] -= done
            if not self._items[item]:
                await self._finish(item)

    async def _finish(self, item: WorkItem) -> None:
        del self._items[item]
        await self._work.finish_item(self._batch, owner=self._context.owner, item=item)

    def _completion(self, sequence: FinishedSequence) -> Completion:
        id = SampleId(sequence.row_uid, sequence.sample)
        return Completion(
            id=id,
            prompt_num_tokens=len(self._prompts[sequence.row_uid].token_ids),
            token_ids=np.asarray(sequence.token_ids, dtype=np.int32),
            rollout_logprobs=np.asarray(sequence.logprobs, dtype=np.float32),
            loss_mask=np.ones(len(sequence.token_ids), dtype=np.bool_),
            segments=(0,),
            finish_reason=sequence.finish_reason,
            policy_version=self._policy.version,
            weights_digest=self._policy.digest,
            instance=self._context.instance,
            started_at=self._started_at[id],
            ended_at=time.time(),
        )

    async def _settle_commits(self) -> None:
        with self._context.watch.measure("store"):
            await asyncio.gather(*self._commits)

    async def _leave_unfinished(self) -> None:
        """Save the tokens of unfinished sequences, and offer their items again."""
        partials = await self._context.compute(self._engine.abort)
        await self._work.save_partials(
            self._batch,
            fence=self._call.fence,
            partials={
                SampleId(partial.row_uid, partial.sample): encode_partial(partial.token_ids, partial.logprobs)
                for partial in partials
                if partial.token_ids
            },
        )
        for item in list(self._items):
            await self._work.return_item(self._batch, owner=self._context.owner, item=item)

    async def _abandon(self) -> None:
        """After a failure: an engine without sequences, and items that others need not wait for."""
        for task in list(self._commits):
            task.cancel()
        await self._context.compute(self._engine.abort)
        for item in list(self._items):
            with contextlib.suppress(StoreUnavailable):
                await self._work.return_item(self._batch, owner=self._context.owner, item=item)

    @contextlib.asynccontextmanager
    async def _renewed_leases(self) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                await asyncio.sleep(RENEW_EVERY_S)
                with contextlib.suppress(StoreUnavailable):
                    await self._work.renew_leases(self._batch, owner=self._context.owner, ttl_s=LEASE_TTL_S)

        task = asyncio.create_task(renew(), name="leases")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
