"""The plans of a step as they are shown and kept: what was expected and what came of it, without the single rows.

A record is stored as soon as a round is planned, and again, with what was measured, together with the head behind the
step. It is kept as long as the run and takes a few kilobytes, whatever the size of the batch.
"""

import asyncio
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from controller.runs.context import RunContext
from controller.runs.planning import Planned
from controller.scheduling.actor_count import Candidate
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.locality import Place
from controller.scheduling.observations import SchedulePolicy
from controller.scheduling.pipelining import ExecutionHint
from controller.scheduling.plan import Expected, StepPlan
from controller.scheduling.prefill_choice import PrefillPlan
from shared.contracts.call import BatchKey
from shared.contracts.stage import Stage

MAX_CANDIDATES = 64
"""Numbers of actors that are shown; of more, those around the chosen one and some of the rest."""
MAX_ACTORS = 1024
"""Actors that are shown one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedActor:
    """What one actor is to sample."""

    num_groups: int
    num_samples: int
    estimated_tokens: float
    """Expected tokens of all its completions."""
    expected_s: float | None
    """Seconds of its prefill and decoding."""
    place: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a round really took."""

    time_s: float
    """From asking for actors to the last completion."""
    replica_s: float
    """Seconds that replicas of rollout were held meanwhile."""
    unit_s: float
    """The same in the units of the plan's cost: GPU-seconds, or core-seconds."""
    time_error: float | None
    """(expected - measured) / measured; ``None`` where nothing was expected or it took no time."""
    cost_error: float | None
    """The same of the cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """The plan of one sampling round."""

    round: int
    digest: str
    """SHA-256 of the whole plan, rows included."""
    num_actors: int
    num_groups: int
    num_offered: int
    """Work items that any actor may take."""
    rollout_threads: int
    expected: Expected | None
    """``actor_s`` is left out: see ``actors``."""
    actors: tuple[PlannedActor, ...]
    candidates: tuple[Candidate, ...]
    """Numbers of actors that were compared: time, cost, score."""
    prefill: PrefillPlan | None
    unhonoured: tuple[str, ...]
    """Constraints that the platform cannot honour."""
    execution: ExecutionHint | None
    """Which execution of the whole step would be the fastest; ``None`` before a step tells how long its parts take."""
    techniques: Mapping[str, Mapping[str, float]]
    """What each technique is expected to do."""
    length_sources: Mapping[str, int]
    """Rows by what their expected length is from: history, answer, default."""
    profile: DecodeProfile | None
    """Measured speed of an actor; ``None``: stated defaults stood in."""
    num_warm: int
    """Actors that were up already."""
    measured: Measured | None = None
    """``None`` until the step has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingRecord:
    """What was decided about a stage's replicas after their work."""

    stage: Stage
    decision: Literal["hold", "release", "leave"]
    """``leave``: to the platform's own scaling."""
    reason: str
    idle_s: float | None
    """Expected seconds until the next use."""
    predicted_saved_s: float
    """Held seconds per replica that it saves against the other choice."""
    prewarm_at: float | None
    """Unix seconds at which a replica is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """All plans of one step."""

    step: int
    state: Literal["running", "done"] = "running"
    policy: SchedulePolicy
    rounds: tuple[RoundRecord, ...] = ()
    holding: tuple[HoldingRecord, ...] = ()


_RECORD = TypeAdapter(PlanRecord)


class PlanRecords:
    """The record of one step while it grows."""

    def __init__(self, run: RunContext, step: int, policy: SchedulePolicy) -> None:
        self._run = run
        self._record = PlanRecord(step=step, policy=policy)

    @property
    def record(self) -> PlanRecord:
        """What there is so far."""
        return self._record

    async def add(self, batch: BatchKey, planned: Planned) -> None:
        """Store a round's plan, for people who want to know what is going on."""
        added = await asyncio.to_thread(round_record, batch.round, planned)
        self._record = replace(self._record, rounds=(*self._record.rounds, added))
        run = self._run
        await run.store.records.put_plan(run.run, self._record.step, fence=run.fence, plan=format_record(self._record))

    def finished(self, measured: Sequence[Measured], holding: Sequence[HoldingRecord]) -> PlanRecord:
        """The record of the whole step, with what its rounds really took."""
        rounds = (replace(record, measured=took) for record, took in zip(self._record.rounds, measured, strict=True))
        return replace(self._record, state="done", rounds=tuple(rounds), holding=tuple(holding))


def round_record(number: int, planned: Planned) -> RoundRecord:
    """What is kept of a plan. Pure."""
    plan, observations = planned.plan, planned.observations
    return RoundRecord(
        round=number,
        digest=plan_digest(plan),
        num_actors=plan.num_actors,
        num_groups=len(observations.groups),
        num_offered=len(plan.offered),
        rollout_threads=plan.rollout_threads,
        expected=None if plan.expected is None else replace(plan.expected, actor_s=()),
        actors=_actors(planned),
        candidates=shown_candidates(plan.candidates, plan.num_actors),
        prefill=plan.prefill,
        unhonoured=plan.unhonoured,
        execution=plan.execution,
        techniques=plan.techniques,
        length_sources=planned.sources,
        profile=observations.profile,
        num_warm=observations.num_warm,
    )


def _actors(planned: Planned) -> tuple[PlannedActor, ...]:
    plan, estimates = planned.plan, planned.estimates
    seconds = plan.expected.actor_s if plan.expected is not None else ()
    return tuple(
        PlannedActor(
            num_groups=len({item.row_uid for item in items}),
            num_samples=sum(len(item.samples) for item in items),
            estimated_tokens=sum(estimates[item.row_uid].mean * len(item.samples) for item in items),
            expected_s=seconds[number] if number < len(seconds) else None,
            place=plan.placement[number] if number < len(plan.placement) else None,
        )
        for number, items in enumerate(plan.assigned[:MAX_ACTORS])
    )


def shown_candidates(candidates: Sequence[Candidate], chosen: int) -> tuple[Candidate, ...]:
    """At most ``MAX_CANDIDATES``: the chosen number with its neighbours, the ends, and some evenly between."""
    if len(candidates) <= MAX_CANDIDATES:
        return tuple(candidates)
    half = MAX_CANDIDATES // 2
    near = sorted(range(len(candidates)), key=lambda place: (abs(candidates[place].num_actors - chosen), place))
    kept = {*near[: half - 1], *(place * (len(candidates) - 1) // half for place in range(half + 1))}
    return tuple(candidates[place] for place in sorted(kept))


def plan_digest(plan: StepPlan) -> str:
    """SHA-256 of the plan: equal plans have equal ones."""
    content = json.dumps(plan.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def format_record(record: PlanRecord) -> bytes:
    """The record as compressed JSON: actors and candidates are much alike."""
    return zlib.compress(_RECORD.dump_json(record))


def parse_record(data: bytes) -> PlanRecord | None:
    """Inverse of ``format_record``; ``None`` for what another version wrote."""
    try:
        return _RECORD.validate_json(zlib.decompress(data))
    except (zlib.error, ValidationError):
        return None


def as_json(record: PlanRecord) -> dict[str, Any]:
    """The record as JSON values."""
    value: dict[str, Any] = _RECORD.dump_python(record, mode="json")
    return value
