"""Replicas between two uses: held, released, or started again in time (``controller.scheduling.holding``).

Every stage's state is durable when its call has ended, so any replica may go. On one machine an idle replica takes
nothing from anybody, while one that starts takes cores from those that compute: there replicas stay, unless others wait
for their room.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from controller.platforms.base import FunctionState, ReplicaLife
from controller.platforms.stage_routing import state_of
from controller.runs.actor_hold import ActorHold, busy_only
from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.context import RunContext
from controller.runs.past_steps import PastSteps, gap_metric, load_metric, read_past, reload_metric
from controller.runs.plan_records import HoldingRecord
from controller.runs.stage_client import CallRecord
from controller.runs.stage_figures import StageFigures, stage_figures
from controller.scheduling.holding import HoldingFigures, hold_or_release, prewarm_at
from controller.scheduling.observations import SchedulePolicy
from shared.contracts.stage import Purpose, Stage
from shared.service.ending import end_task

START_HOLD_S = 60.0
"""How long actors are asked for at least, from a batch's begin: longer than they take to start. Once they have calls
those keep them."""
WAITED_S = 1.0
"""Longer than a replica waits for a place where there is one."""
FIRST_HOLD_S = 60.0
"""How long a replica of one machine is held before anything is known of the gap."""
LAST_STAGE = Stage.LEARNER
"""What a step ends with: where a function serves several stages, its replicas are free after this one."""
FIRST_STAGES = frozenset({Stage.PREFILL, Stage.ROLLOUT})
"""What a step begins with."""
EVALUATING = frozenset({Stage.ROLLOUT, Stage.REWARD})
"""What an evaluation needs."""


class Holding:
    """Decides about replicas for one owner of a run, and starts them again. To be closed in the end."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._policy = schedule_policy(run.config)
        self._since = run.platform.now()
        self._is_last = self._evaluates = False
        self._past: PastSteps | None = None
        """Read once for each step: a long line of history for each of its steps."""
        self._decided: list[HoldingRecord] = []
        self._said: dict[Stage, str] = {}
        """The latest decision on each stage that the run's log has."""
        self._last_use: dict[Stage, tuple[Purpose, float]] = {}
        """What each stage was last used for, and until when."""
        self._seen: set[str] = set()
        """Replicas that have answered."""
        self._starting: dict[Stage, asyncio.Task[None]] = {}

    @property
    def decided(self) -> tuple[HoldingRecord, ...]:
        """What was decided since the step began."""
        return tuple(self._decided)

    def begin_step(self, *, is_last: bool, evaluates: bool) -> None:
        """A step begins; ``is_last`` where none comes after it, ``evaluates`` where an evaluation does."""
        self._is_last, self._evaluates = is_last, evaluates
        self._past, self._decided = None, []

    async def past(self) -> PastSteps:
        """What the steps before this one took."""
        if self._past is None:
            self._past = await read_past(self._run)
        return self._past

    async def start_actors(self, num_actors: int, *, until: float) -> ActorHold:
        """Ask for replicas of rollout, which have work now. They are given back as they run out of it, unless they are
        to be held for the next step."""
        platform = self._run.platform
        await self._cancel_start(Stage.ROLLOUT)
        await platform.scale(Stage.ROLLOUT, num_actors, hold_until=until)
        state = await self._function_of(Stage.ROLLOUT)
        keeps = state is not None and (await self._decide(Stage.ROLLOUT, state)).decision == "hold"
        return ActorHold(platform, num_actors, until=until, num_kept=(lambda _: num_actors) if keeps else busy_only)

    async def after(self, stage: Stage) -> None:
        """Decide what becomes of the stage's replicas, which have no more to do in this step, and let it happen."""
        platform = self._run.platform
        state = await self._function_of(stage)
        if state is None or state.num_replicas == 0 or (len(state.stages) > 1 and stage is not LAST_STAGE):
            return
        decided, now = await self._decide(stage, state), platform.now()
        gaps_s = (await self.past()).gaps_s.get(stage, ())
        longest_s = max(gaps_s, default=FIRST_HOLD_S) + self._policy.buffer_s
        await self._cancel_start(stage)
        if decided.decision == "hold":
            await platform.scale(stage, state.num_replicas, hold_until=now + longest_s)
        else:
            await platform.scale(stage, 0, hold_until=now)
        if decided.decision == "release":
            await platform.release(stage)
        if decided.prewarm_at is not None:
            start = self._start_at(decided.prewarm_at, stage, state.num_replicas, until=now + longest_s)
            self._starting[stage] = asyncio.create_task(start, name=f"start {stage}")
        self._decided.append(decided)
        await self._say(decided)

    def note(self, calls: Sequence[CallRecord]) -> dict[str, float]:
        """Remember when stages were used last; metrics of the gaps before, and of what replicas took to load."""
        metrics = use_metrics(calls, self._last_use) | load_metrics(calls, self._seen, since=self._since)
        self._seen |= {call.instance for call in calls}
        for call in sorted(calls, key=lambda call: call.received_at):
            self._last_use[call.key.stage] = (call.key.purpose, call.received_at)
        return metrics

    async def close(self) -> None:
        """Start nothing any more."""
        for stage in list(self._starting):
            await self._cancel_start(stage)

    async def _function_of(self, stage: Stage) -> FunctionState | None:
        return state_of(await self._run.platform.functions(), stage)

    async def _decide(self, stage: Stage, state: FunctionState) -> HoldingRecord:
        platform = self._run.platform
        past, lives = await self.past(), await platform.replicas()
        own = [life for life in lives if life.function == state.name]
        return decide(
            stage,
            now=platform.now(),
            policy=self._policy,
            gaps_s=past.gaps_s.get(stage, ()),
            figures=stage_figures(stage, own, past, platform.figures()),
            shares_machine=self._run.resources.shared_threads,
            is_crowded=others_waited(lives, state.name, since=self._since),
            begins_next=len(state.stages) > 1 and not FIRST_STAGES.isdisjoint(state.stages),
            is_last=self._is_last and not (self._evaluates and stage in EVALUATING),
        )

    async def _cancel_start(self, stage: Stage) -> None:
        starting = self._starting.pop(stage, None)
        if starting is not None:
            await end_task(starting)

    async def _start_at(self, at: float, stage: Stage, num_replicas: int, *, until: float) -> None:
        platform = self._run.platform
        await platform.sleep(max(0.0, at - platform.now()))
        await platform.scale(stage, num_replicas, hold_until=until)

    async def _say(self, decided: HoldingRecord) -> None:
        """Into the run's log, when it is decided otherwise than before."""
        if self._said.get(decided.stage) != decided.decision:
            self._said[decided.stage] = decided.decision
            verb = {"hold": "are held", "release": "are released", "leave": "are left to the platform"}
            text = f"replicas of {decided.stage} {verb[decided.decision]} after their work: {decided.reason}"
            await self._run.emit("log", {"level": "info", "message": text})


def decide(
    stage: Stage,
    *,
    now: float,
    policy: SchedulePolicy,
    gaps_s: Sequence[float],
    figures: StageFigures,
    shares_machine: bool,
    is_crowded: bool,
    begins_next: bool,
    is_last: bool,
) -> HoldingRecord:
    """What becomes of a stage's replicas that have no more to do at the time ``now``. Pure.

    ``gaps_s`` are the past ones until the next use; ``is_crowded``: replicas of others had to wait for room;
    ``begins_next``: the function serves what the next step begins with, too.
    """
    prewarm = None
    if policy.prewarm and not is_last:
        prewarm = prewarm_at(now, gaps_s, figures.cold_start_s + figures.load_s, policy.buffer_s)
    # What a held replica loads for its next use as well is no cost of the release.
    load_s = max(0.0, figures.load_s - figures.reload_s)
    costs = HoldingFigures(drain_s=figures.drain_s, cold_start_s=figures.cold_start_s, load_s=load_s)
    hold = hold_or_release(gaps_s, costs)
    idle_s = hold.idle_s if gaps_s else None

    def record(keep: bool | None, reason: str, saved_s: float = 0.0) -> HoldingRecord:
        return HoldingRecord(
            stage=stage,
            decision="leave" if keep is None else "hold" if keep else "release",
            reason=reason,
            idle_s=None if is_last else idle_s,
            predicted_saved_s=saved_s,
            prewarm_at=prewarm if keep is False else None,
        )

    if is_last:
        return record(False, "the run needs them no more")
    if not policy.holding:
        return record(False, "schedule.holding.enable is false")
    if begins_next:
        return record(True, "the next step begins on them")
    if is_crowded:
        return record(False, "replicas of other functions had to wait for room")
    if shares_machine:
        return record(True, "on one machine an idle replica takes nothing from others, and one that starts does")
    if not gaps_s:
        return record(None, hold.reason)
    return record(hold.keep, hold.reason, hold.saved_s)


def others_waited(lives: Sequence[ReplicaLife], function: str, *, since: float) -> bool:
    """Whether a replica of another function waits for a place, or has had to wait for one since then. Pure."""
    others = [life for life in lives if life.function != function and life.scheduled_at >= since]
    return any(
        bool(life.reason) and life.ended_at is None
        if life.started_at is None
        else life.started_at - life.scheduled_at > WAITED_S
        for life in others
    )


def use_metrics(calls: Sequence[CallRecord], last_use: Mapping[Stage, tuple[Purpose, float]]) -> dict[str, float]:
    """The gap before each stage's first call of a step, by metric. Pure.

    Only a gap between two steps counts: an evaluation between them has uses of its own.
    """
    metrics: dict[str, float] = {}
    for call in sorted(calls, key=lambda call: call.sent_at):
        stage = call.key.stage
        purpose, until = last_use.get(stage, (None, 0.0))
        if purpose is Purpose.TRAIN and call.key.purpose is Purpose.TRAIN:
            metrics.setdefault(gap_metric(stage), max(0.0, call.sent_at - until))
    return metrics


def load_metrics(calls: Sequence[CallRecord], seen: Collection[str], *, since: float) -> dict[str, float]:
    """The longest load of a new replica of each stage, and of one that was there, by metric. Pure.

    New are those that are not among the ``seen`` and have started ``since`` the owner has begun.
    """
    metrics: dict[str, float] = {}
    answered = set(seen)
    for call in sorted(calls, key=lambda call: call.started_at):
        is_new = call.instance not in answered and call.replica_started_at >= since
        answered.add(call.instance)
        if call.load_s > 0:
            name = (load_metric if is_new else reload_metric)(call.key.stage)
            metrics[name] = max(call.load_s, metrics.get(name, 0.0))
    return metrics
