"""One worker call: lease items, decode, commit each completion as it ends, until no work is left (DESIGN, rule 6).

    lease items ─▶ waiting samples ─▶ engine ─▶ finished ─▶ commit each ─▶ item done
         ▲                               │ deadline, cut, cancel
         └──────── give items back ◀── save partial completions

Decoding runs on the compute thread in short bursts; leases, commits, heartbeats and mail run on the event loop
beside it.
"""

import logging
import time
from collections.abc import Mapping, Sequence

import numpy as np

from functions.rollout.commits import CommitQueue
from functions.rollout.engine import Engine, FinishedSequence, PartialSequence, SamplingParams, SequenceRequest
from functions.rollout.leased_work import LeasedWork
from functions.rollout.mailbox import Mailbox
from functions.rollout.turns.spans import turn_starts
from functions.rollout.turns.turn_loop import TurnLoop
from shared.codec.completions import Partial, encode_completion, encode_partial
from shared.contracts.call import StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import Cancelled, StoreUnavailable
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling
from shared.contracts.rollout_mail import MailKind
from shared.modeling.threads import use_threads
from shared.service.beside import beside
from shared.service.handler import CallContext, Outcome

log = logging.getLogger(__name__)

BURST_S = 0.05
"""Longest stretch of decoding between two looks at the event loop."""
LOOK_AGAIN_S = 1.0
"""Pause after a look for work that found none: others may give items back, or die with them."""
SAVE_S = 1.0
"""Kept free before the deadline for saving what is unfinished."""


class RolloutWorker:
    """One worker call."""

    def __init__(
        self,
        call: StageCall[RolloutInputs],
        policy: PolicyRef,
        prompts: Mapping[str, Prompt],
        engine: Engine,
        context: CallContext,
        turn_loop: TurnLoop | None = None,
    ) -> None:
        """``turn_loop`` answers the turns of a call with several."""
        self._call = call
        self._policy = policy
        self._prompts = prompts
        self._engine = engine
        self._context = context
        self._work = context.store.work
        self._batch = call.key.batch
        self._turn_loop = turn_loop
        self._params = sampling_params(call.inputs.sampling, turn_loop.stop if turn_loop else ())
        self._worthwhile_room = worthwhile_room(call.inputs.num_samples, call.inputs.max_num_sequences)
        self._mailbox = Mailbox(self._work, call)
        self._leased = LeasedWork(call, prompts, context)
        self._commits = CommitQueue(self._commit)
        self._look_again_at = 0.0
        self._num_completions = self._num_tokens = self._num_turns = self._num_tool_errors = 0

    async def run(self) -> Outcome[RolloutOutputs]:
        """Work until nothing is left, or until the deadline or a message ends it.

        Raises ``PoisonedItem``, ``StaleFence``, ``Cancelled``, and ``InvalidInput`` for what the engine cannot sample.
        Whatever it raises, the engine runs nothing afterwards and others can take the items.
        """
        try:
            async with (
                beside(self._mailbox.watch()),
                beside(self._leased.renew()),
            ):
                finished = await self._work_off()
                with self._context.watch.measure("store"):
                    await self._commits.settle()
                    if not finished:
                        await self._leave_unfinished()
        except BaseException as error:
            await self._abandon(error)
            raise
        told = self._mailbox.interrupt
        cancelled = self._context.stop.is_set() or told.reason == MailKind.CANCEL
        if cancelled and not finished:
            raise Cancelled(f"stopped: {self._context.stop.reason or told.reason}; finished completions are kept")
        return Outcome(
            outputs=RolloutOutputs(
                num_completions=self._num_completions,
                num_tokens=self._num_tokens,
                num_turns=self._num_turns,
                # Only what is answered has a turn after it.
                num_tool_calls=self._num_turns - self._num_completions,
                num_tool_errors=self._num_tool_errors,
                num_resumed=self._leased.num_resumed,
            ),
            status="done" if finished or told.is_set() else "continue",
            policy_version=self._policy.version,
            weights_digest=self._policy.digest,
        )

    async def _work_off(self) -> bool:
        """Lease and decode. True when no work is left, False when something ended it before."""
        while not self._is_interrupted():
            await self._fill_engine()
            if self._engine.num_running == 0:
                return True
            with self._context.watch.measure("compute"):
                finished = await self._context.compute(self._burst, self._can_fill_room())
            self._commits.add(finished)
            # Looked at after decoding only, so that every call makes progress.
            if self._context.remaining_s() < SAVE_S:
                return False
        return False

    async def _fill_engine(self) -> None:
        """Start sequences while there is room and work. Nothing runs afterwards only if there is no work."""
        while True:
            room = self._call.inputs.max_num_sequences - self._engine.num_running
            if room < min(self._worthwhile_room, self._leased.num_waiting or self._worthwhile_room):
                return
            if self._leased.num_waiting:
                with self._context.watch.measure("compute"):
                    await self._context.compute(self._add, self._leased.take(room))
            elif not await self._look_for_work(room):
                return

    async def _look_for_work(self, room: int) -> bool:
        if self._engine.num_running == 0:
            # Committed items are no longer held, so that an item which must go alone can come.
            with self._context.watch.measure("store"):
                await self._commits.settle()
        elif not self._can_fill_room():
            return False
        found = await self._leased.lease(room)
        if not found:
            self._look_again_at = time.monotonic() + LOOK_AGAIN_S
        return found

    def _can_fill_room(self) -> bool:
        return self._leased.num_waiting > 0 or time.monotonic() >= self._look_again_at

    def _is_interrupted(self) -> bool:
        return self._context.stop.is_set() or self._mailbox.interrupt.is_set()

    def _add(self, requests: Sequence[SequenceRequest]) -> None:
        use_threads(self._call.threads)
        self._engine.add(requests, self._params, self._turn_loop.next_turn if self._turn_loop else None)

    def _burst(self, fills_room: bool) -> list[FinishedSequence]:
        """Decode for a while, on the compute thread: less long if there is room that can be filled, or an interrupt."""
        use_threads(self._call.threads)
        finished: list[FinishedSequence] = []
        until = time.monotonic() + BURST_S
        while self._engine.num_running > 0:
            finished += self._engine.step()
            if time.monotonic() >= until or self._is_interrupted():
                break
            if fills_room and len(finished) >= self._worthwhile_room:
                break
        return finished

    async def _commit(self, finished: Sequence[FinishedSequence]) -> None:
        completions = [self._completion(sequence) for sequence in finished]
        await self._work.commit_samples(
            self._batch,
            fence=self._call.fence,
            samples={completion.id: encode_completion(completion) for completion in completions},
        )
        self._num_completions += len(completions)
        self._num_tokens += sum(len(completion.token_ids) for completion in completions)
        self._num_turns += sum(len(completion.segments) for completion in completions)
        if self._turn_loop:
            self._num_tool_errors += sum(self._turn_loop.num_errors(sequence) for sequence in finished)
        await self._leased.note_committed({completion.id for completion in completions})

    def _completion(self, sequence: FinishedSequence) -> Completion:
        id = SampleId(sequence.row_uid, sequence.sample)
        return Completion(
            id=id,
            prompt_num_tokens=len(self._prompts[sequence.row_uid].token_ids),
            token_ids=np.asarray(sequence.token_ids, dtype=np.int32),
            rollout_logprobs=np.asarray(sequence.logprobs, dtype=np.float32),
            processed_logprobs=np.asarray(sequence.processed_logprobs, dtype=np.float32),
            loss_mask=np.asarray(sequence.loss_mask, dtype=np.bool_),
            segments=turn_starts(sequence.loss_mask),
            finish_reason=sequence.finish_reason,
            policy_version=self._policy.version,
            weights_digest=self._policy.digest,
            instance=self._context.instance,
            started_at=self._leased.started_at[id],
            ended_at=time.time(),
        )

    async def _leave_unfinished(self) -> None:
        """Save the tokens of unfinished sequences, then offer their items again."""
        partials = await self._context.compute(self._engine.abort)
        await self._work.save_partials(
            self._batch,
            fence=self._call.fence,
            partials={
                SampleId(partial.row_uid, partial.sample): encode_partial(_saved(partial))
                for partial in partials
                if partial.token_ids
            },
        )
        await self._leased.give_back()

    async def _abandon(self, error: BaseException) -> None:
        """After a failure: an engine without sequences, and items that others need not wait for.

        It never hides the failure by another one.
        """
        try:
            await self._commits.drop()
            await self._context.compute(self._engine.abort)
            # A lost store is not waited for again: the leases end by themselves.
            if not isinstance(error, StoreUnavailable):
                await self._leased.give_back()
        except Exception:
            log.warning("a failed call of %s left something behind", self._call.key, exc_info=True)


def _saved(partial: PartialSequence) -> Partial:
    return Partial(
        token_ids=np.asarray(partial.token_ids, dtype=np.int32),
        rollout_logprobs=np.asarray(partial.logprobs, dtype=np.float32),
        processed_logprobs=np.asarray(partial.processed_logprobs, dtype=np.float32),
        loss_mask=np.asarray(partial.loss_mask, dtype=np.bool_),
    )


def sampling_params(sampling: Sampling, turn_stop: tuple[str, ...] = ()) -> SamplingParams:
    """How the engine draws tokens; ``turn_stop`` ends turns beside what the call itself stops at."""
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        eos_token_ids=() if sampling.ignore_eos else sampling.eos_token_ids,
        stop=tuple(dict.fromkeys((*sampling.stop, *turn_stop))),
    )


def worthwhile_room(num_samples: int, max_num_sequences: int) -> int:
    """How many free places in the engine are worth filling: those of a group, whose prompt is then computed once.

    At most half of all places stay empty for that.
    """
    return max(1, min(num_samples, max_num_sequences // 2))
