"""Beside a batch's worker calls: look at how far the actors are, cut the ones that migration empties, move their rest.

progress ─▶ decide_migrations ─▶ mail "cut" ─▶ the actor saves its sequences, hands them on, answers
                                                      └▶ takers are told, and go on with them
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from controller.runs.actor_hold import ActorHold
from controller.runs.actor_reports import Heard
from controller.runs.context import RunContext
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.migration import ActorProgress, Cut, MigrationFigures, Spent, decide_migrations
from controller.scheduling.observations import SchedulePolicy, StepObservations
from controller.scheduling.plan import PRIOR
from controller.scheduling.remaining import Remaining, remaining
from shared.contracts.call import BatchKey
from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.rollout import RolloutProgress
from shared.contracts.rollout_mail import MailKind, RolloutMail, Taker

LOOK_EVERY_S = 0.25
"""Seconds of the platform's time; as often as workers report."""
CALM_S = 0.75
"""After what was cut has arrived elsewhere: until the reports of the takers say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What the decision to cut an actor depends on, besides progress."""

    profile: DecodeProfile
    figures: MigrationFigures
    estimates: Mapping[str, LengthEstimate] = field(default_factory=dict)
    """Expected lengths of each row's group."""
    probes: bool = True
    """Whether the finished samples of a group correct what is expected of the others."""


def migration_of(observations: StepObservations, policy: SchedulePolicy) -> Migration | None:
    """What a step's schedule says of migration; ``None`` where it is off. Pure."""
    if not policy.migration or policy.tau >= 1:
        return None
    return Migration(
        profile=observations.profile or replace(PRIOR, max_num_sequences=observations.max_num_sequences),
        figures=MigrationFigures(
            tau=policy.tau,
            end_game=policy.end_game,
            with_kv=policy.with_kv,
            lambda_=policy.lambda_,
            bandwidth_bytes_per_s=observations.platform.bandwidth_bytes_per_s,
            shared_threads=observations.resources.shared_threads,
        ),
        estimates={group.row_uid: group.estimate for group in observations.groups},
        probes=policy.probing,
    )


@dataclass(slots=True, kw_only=True)
class WorkerCalls:
    """The worker calls of a batch."""

    num_shards: int
    beside_learner: Collection[int] = ()
    """Shards whose calls go to the learner's process."""
    open: dict[int, int] = field(default_factory=dict)
    """By shard: the segment of the call that is on its way."""
    answered: set[str] = field(default_factory=set)
    """Replicas of rollout that have answered a last call."""

    def note_answer(self, shard: int, instance: str) -> None:
        """The shard's last call was answered."""
        del self.open[shard]
        if shard not in self.beside_learner:
            self.answered.add(instance)

    def busy(self, reports: Mapping[int, RolloutProgress]) -> dict[int, str | None]:
        """By shard of a call that a replica of rollout works on: its instance, if that has reported."""
        own = [shard for shard in self.open if shard not in self.beside_learner]
        return {shard: reports[shard].instance if shard in reports else None for shard in own}


async def watch_actors(
    run: RunContext, batch: BatchKey, calls: WorkerCalls, migration: Migration | None, hold: ActorHold | None
) -> None:
    """Migrate, and give idle replicas back, until cancelled."""
    heard = Heard()
    migrator = None if migration is None else Migrator(run, batch, migration, heard)
    while True:
        await run.platform.sleep(LOOK_EVERY_S)
        try:
            heard.take(await run.store.work.progress(batch), run.platform.now())
            reports = heard.fresh(calls.open, run.platform.now())
            if migrator is not None:
                await migrator.look(reports, calls)
        except (StoreRefused, StoreUnavailable):
            # Workers go on by themselves; there is another look soon.
            continue
        if hold is not None:
            await hold.give_back(calls.busy(reports), calls.answered)


class Migrator:
    """Cuts actors of one batch."""

    def __init__(self, run: RunContext, batch: BatchKey, migration: Migration, heard: Heard) -> None:
        self._run = run
        self._batch = batch
        self._migration = migration
        self._heard = heard
        self._cut: dict[int, int] = {}
        """By shard: the segment that was cut."""
        self._calm_until = 0.0
        self._is_settled = True
        self._began_at = self._looked_at = run.platform.now()
        self._held_s = 0.0

    async def look(self, reports: Mapping[int, RolloutProgress], calls: WorkerCalls) -> None:
        """Decide once, and tell the actors."""
        now = self._run.platform.now()
        self._held_s += len(calls.open) * (now - self._looked_at)
        self._looked_at = now
        if any(calls.open.get(shard) == segment for shard, segment in self._cut.items()):
            # Before it has answered nobody knows what it left to whom.
            self._is_settled = False
            return
        if self._cut:
            await self._offer_what_nobody_comes_for(calls)
        if not self._is_settled:
            self._is_settled, self._calm_until = True, now + CALM_S
        if now < self._calm_until:
            return
        figures = self._migration.figures
        if reports.keys() != calls.open.keys():
            # Who has not begun may have a lot to do: it is no tail yet.
            figures = replace(figures, end_game=False)
        # For a large batch that takes some tenths of a second, four times a second.
        for cut in await asyncio.to_thread(self._decide, reports, figures, now):
            await self._post(cut, reports[cut.shard])

    def _decide(self, reports: Mapping[int, RolloutProgress], figures: MigrationFigures, now: float) -> tuple[Cut, ...]:
        return decide_migrations(
            [as_progress(report) for _, report in sorted(reports.items())],
            self._migration.profile,
            figures,
            already_cut=self._cut,
            remaining=self._remaining(reports),
            spent=Spent(time_s=now - self._began_at, held_s=self._held_s),
        )

    def _remaining(self, reports: Mapping[int, RolloutProgress]) -> Remaining:
        """What to expect of running samples: where they are probed, by what the batch has shown."""
        estimates = self._migration.estimates
        return self._heard.remaining(estimates, reports.values()) if self._migration.probes else remaining(estimates)

    async def _post(self, cut: Cut, report: RolloutProgress) -> None:
        takers = tuple(Taker(shard=shard, free_slots=count) for shard, count in cut.takers)
        self._cut[cut.shard] = report.segment
        self._is_settled = False
        message = RolloutMail(
            kind=MailKind.CUT, fence=self._run.fence, segment=report.segment, takers=takers, with_kv=cut.with_kv
        )
        await self._run.store.work.post(self._batch, shard=cut.shard, message=message.model_dump_json())
        await self._run.emit(
            "migration",
            {
                "purpose": self._batch.purpose,
                "step": self._batch.step,
                "round": self._batch.round,
                "shard": cut.shard,
                "instance": report.instance,
                "at": self._run.platform.now(),
                "reason": cut.reason,
                "with_kv": cut.with_kv,
                "num_sequences": len(report.running) + report.num_waiting,
                "num_tokens": sum(sequence.num_tokens for sequence in report.running),
                "expected_saved_s": cut.saved_s,
                "takers": {str(taker.shard): taker.free_slots for taker in takers},
            },
        )

    async def _offer_what_nobody_comes_for(self, calls: WorkerCalls) -> None:
        """A taker may have ended just before something was left to it; a cut actor leaves what it had not taken."""
        gone = [shard for shard in range(calls.num_shards) if shard not in calls.open]
        if await self._run.store.work.offer_queues(self._batch, shards=gone):
            message = RolloutMail(kind=MailKind.WORK, fence=self._run.fence)
            await self._run.store.work.post(self._batch, shard=None, message=message.model_dump_json())


def as_progress(report: RolloutProgress) -> ActorProgress:
    """A report in the words of scheduling. Pure."""
    return ActorProgress(
        shard=report.shard,
        instance=report.instance,
        at=report.at,
        num_assigned=report.num_assigned,
        num_done=report.num_done,
        num_waiting=report.num_waiting,
        running=tuple((sequence.row_uid, sequence.sample, sequence.num_tokens) for sequence in report.running),
        free_slots=report.free_slots,
        tokens_per_s=report.tokens_per_s,
        max_tokens=report.max_tokens,
        context_tokens=report.context_tokens,
        most_moves=report.most_migrations,
    )
