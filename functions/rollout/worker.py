"""One worker call: lease items, decode, commit each completion as it ends, until no work is left (DESIGN, rule 6).

    lease items ─▶ waiting samples ─▶ engine ─▶ finished ─▶ commit each ─▶ item done
         ▲                               │ deadline, cut, cancel
         └── give items back, hand on ◀── save partial completions

Decoding runs on the compute thread in short bursts; leases, commits, heartbeats, mail and reports run on the event loop
beside it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from functions.rollout.clock import Clock
from functions.rollout.commits import CommitQueue
from functions.rollout.completing import completion_of
from functions.rollout.decoding import Decoding
from functions.rollout.engine import Engine, FinishedSequence
from functions.rollout.kv_capacity import kv_capacity_tokens
from functions.rollout.leased_work import LeasedWork
from functions.rollout.mailbox import Mailbox
from functions.rollout.prefix_cache import PrefixCacheParams
from functions.rollout.prefixes import Prefixes
from functions.rollout.progress import Reporter
from functions.rollout.sampling import sampling_params
from functions.rollout.seats import Seats, Waiting
from functions.rollout.tally import Tally
from functions.rollout.turns.turn_loop import TurnLoop
from functions.rollout.unfinished import Unfinished
from shared.codec.completions import encode_completion
from shared.contracts.call import StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import Cancelled
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, RolloutOutputs
from shared.contracts.rollout_mail import MailKind
from shared.service.beside import beside
from shared.service.ending import end_task
from shared.service.handler import CallContext, Outcome

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
        *,
        model: str = "",
        clock: Clock | None = None,
    ) -> None:
        """``turn_loop`` answers the turns of a call with several; ``model`` is the policy's folder or hub id (checked).

        ``clock``: the machine's own, unless given.
        """
        self._call = call
        self._policy = policy
        self._prompts = prompts
        self._engine = engine
        self._context = context
        self._turn_loop = turn_loop
        self._clock = clock or Clock()
        self._work = context.store.work
        self._batch = call.key.batch
        self._worthwhile_room = worthwhile_room(call.inputs.num_samples, call.inputs.max_num_sequences)
        self._look_again_at = 0.0
        self._is_told_of_work = False
        self._tally = Tally(
            kv_bytes_per_token=engine.layout.bytes_per_token, kv_capacity_tokens=kv_capacity_tokens(engine.layout)
        )
        self._mailbox = Mailbox(self._work, call)
        self._leased = LeasedWork(call, prompts, context)
        self._commits = CommitQueue(self._commit)
        self._decoding = Decoding(
            engine,
            sampling_params(call.inputs.sampling, turn_loop.stop if turn_loop else ()),
            prompts,
            turn_loop.next_turn if turn_loop else None,
            threads=call.threads,
            clock=self._clock,
        )
        self._seats = Seats(call.key.shard, context.instance, lambda: self._decoding.num_steps)
        self._reporter = Reporter(
            call,
            context,
            self._leased,
            self._seats,
            self._decoding,
            self._tally,
            clock=self._clock,
        )
        self._prefixes = Prefixes(
            engine=engine,
            policy=policy,
            context=context,
            params=PrefixCacheParams(run=call.key.run, model=model),
            are_prefilled=call.inputs.prefix_kv,
        )
        self._unfinished = Unfinished(
            call=call,
            context=context,
            engine=engine,
            leased=self._leased,
            seats=self._seats,
            prefixes=self._prefixes,
            tally=self._tally,
            clock=self._clock,
        )

    async def run(self) -> Outcome[RolloutOutputs]:
        """Work until nothing is left, or until the deadline or a message ends it.

        Raises ``PoisonedItem``, ``StaleFence``, ``Cancelled``, and ``InvalidInput`` for what the engine cannot sample.
        Whatever it raises, the engine runs nothing afterwards and others can take the items.
        """
        try:
            async with (
                beside(self._mailbox.watch()),
                beside(self._leased.renew()),
                beside(self._reporter.report_often()),
            ):
                finished = await self._work_off()
                with self._context.watch.measure("store"):
                    await self._commits.settle()
                    if not finished:
                        await self._unfinished.leave(self._mailbox.ending)
                    # How long the last ones were tells others of their groups.
                    await self._reporter.report()
            await self._context.compute(self._engine.drop_prefixes)
        except BaseException as error:
            await self._unfinished.abandon(self._commits, error)
            raise
        told = self._mailbox.interrupt
        cancelled = self._context.stop.is_set() or told.reason == MailKind.CANCEL
        if cancelled and not finished:
            raise Cancelled(f"stopped: {self._context.stop.reason or told.reason}; finished completions are kept")
        return Outcome(
            outputs=self._tally.outputs(self._leased, self._decoding, self._prefixes.fetched),
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
            await self._burst(fills_room=self._can_fill_room())
            # Looked at after decoding only, so that every call makes progress.
            if self._context.remaining_s() < SAVE_S:
                return False
        return False

    async def _fill_engine(self) -> None:
        """Start sequences while there is room and work. Nothing runs afterwards only if there is no work."""
        if self._mailbox.take_nudge():
            self._look_again_at, self._is_told_of_work = 0.0, True
        while True:
            room = self._call.inputs.max_num_sequences - self._engine.num_running
            # Whoever leaves samples to this actor counts on every place.
            worthwhile = 1 if self._is_told_of_work else self._worthwhile_room
            if room < min(worthwhile, self._leased.num_waiting or worthwhile):
                return
            if self._leased.num_waiting:
                await self._start_some(room)
            elif not await self._look_for_work(room):
                self._is_told_of_work = False
                return

    async def _start_some(self, room: int) -> None:
        sequences = self._leased.take(room)
        if any(self._prefixes.may_have(each) for each in sequences):
            await self._fetch(sequences)
        self._seats.enter(sequences, self._clock.unix())
        with self._context.watch.measure("compute"):
            await self._context.compute(self._decoding.add, [each.request for each in sequences])

    async def _fetch(self, sequences: Sequence[Waiting]) -> None:
        """Fetch what is stored of them, while those that run already go on."""
        fetching = asyncio.create_task(self._prefixes.fetch(sequences))
        try:
            while not fetching.done() and self._engine.num_running > 0 and not self._is_interrupted():
                await self._burst(fills_room=False)
            if not self._is_interrupted():
                await fetching
        finally:
            await end_task(fetching)

    async def _burst(self, *, fills_room: bool) -> None:
        """Decode for a while: less long if there is room that can be filled, or an interrupt."""
        with self._context.watch.measure("compute"):
            burst = await self._context.compute(self._decoding.burst, self._burst_end(fills_room))
        self._seats.note_tokens(burst.first_step_at)
        self._finish(burst.finished)

    async def _look_for_work(self, room: int) -> bool:
        if self._engine.num_running == 0:
            # Committed items are no longer held, so that an item which must go alone can come.
            with self._context.watch.measure("store"):
                await self._commits.settle()
        elif not self._can_fill_room():
            return False
        found = await self._leased.lease(room)
        if not found:
            self._look_again_at = self._clock.elapsed() + LOOK_AGAIN_S
        return found

    def _can_fill_room(self) -> bool:
        return self._leased.num_waiting > 0 or self._clock.elapsed() >= self._look_again_at

    def _burst_end(self, fills_room: bool) -> Callable[[int], bool]:
        """Whether so many finished sequences end a burst. Asked on the compute thread."""
        return lambda num_finished: self._is_interrupted() or (fills_room and num_finished >= self._worthwhile_room)

    def _is_interrupted(self) -> bool:
        return self._context.stop.is_set() or self._mailbox.interrupt.is_set()

    def _finish(self, sequences: Sequence[FinishedSequence]) -> None:
        """Commit these beside the next burst."""
        now = self._clock.unix()
        completions = []
        for sequence in sequences:
            id, num_tokens = SampleId(sequence.row_uid, sequence.sample), len(sequence.token_ids)
            stays = self._seats.leave(id, num_tokens=num_tokens, now=now)
            completions.append(completion_of(sequence, self._prompts[id.row_uid], self._policy, stays))
            if self._turn_loop:
                self._tally.num_tool_errors += self._turn_loop.num_errors(sequence)
        self._reporter.note_finished(completions)
        self._commits.add(completions)

    async def _commit(self, completions: Sequence[Completion]) -> None:
        await self._work.commit_samples(
            self._batch,
            fence=self._call.fence,
            samples={completion.id: encode_completion(completion) for completion in completions},
        )
        self._tally.note(completions)
        await self._leased.note_committed({completion.id for completion in completions})


def worthwhile_room(num_samples: int, max_num_sequences: int) -> int:
    """How many free places in the engine are worth filling: those of a group, whose prompt is then computed once.

    At most half of all places stay empty for that.
    """
    return max(1, min(num_samples, max_num_sequences // 2))
