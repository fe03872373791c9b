"""The plan of one step: which actor samples which prompts, with how many threads, and what that is expected to take.

Pure: observations and a policy in, a plan out. The policies themselves are one file each beside this one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from pydantic import TypeAdapter

from controller.scheduling.actor_count import (
    ActorLimits,
    Candidate,
    best,
    candidates,
    choose_num_actors,
    fewest_with_room,
    profile_of,
)
from controller.scheduling.actor_time import Load, TimedWork, Work, actor_seconds, measure
from controller.scheduling.assignment import (
    assign_balanced,
    assign_in_order,
    assign_randomly,
    cheapest_cuts,
    equal_cuts,
)
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.locality import Place, TransferFigures, place_actors
from controller.scheduling.observations import (
    PlatformFigures,
    PromptGroup,
    Resources,
    SchedulePolicy,
    StepObservations,
)
from controller.scheduling.prefill_choice import PrefillFigures, PrefillPlan, choose_prefill
from shared.contracts.rollout import WorkItem

__all__ = [
    "Expected",
    "PlatformFigures",
    "PromptGroup",
    "Resources",
    "SchedulePolicy",
    "StepObservations",
    "StepPlan",
    "plan_evenly",
    "plan_step",
]

PRIOR = DecodeProfile(base_s=0.01, per_sequence_s=2e-4, per_context_token_s=2e-7, prefill_token_s=5e-5)
"""Before anything is measured: the proportions of a small model. The first observations set the scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a plan is expected to take."""

    time_s: float
    """Until the last actor is done, its start included."""
    replica_s: float
    """Seconds that all actors together are held, starts and drains included."""
    unit_s: float
    """The same in GPU-seconds; core-seconds without GPUs."""
    actor_s: tuple[float, ...]
    """Prefill and decoding of each actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What a step is going to do."""

    assigned: tuple[tuple[WorkItem, ...], ...]
    """Work items of each actor."""
    offered: tuple[WorkItem, ...] = ()
    """Work items that any actor may take."""
    rollout_threads: int
    """Compute threads of each actor."""
    learner_threads: int
    expected: Expected | None = None
    """``None`` where nothing was estimated (evaluation)."""
    candidates: tuple[Candidate, ...] = ()
    """Every number of actors that was compared, ascending."""
    prefill: PrefillPlan | None = None
    placement: tuple[Place, ...] = ()
    """Where each actor runs."""
    unhonoured: tuple[str, ...] = ()
    """Constraints that cannot be met, in words."""
    techniques: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of each technique that is on: what it is expected to do, by name of the figure."""

    @property
    def num_actors(self) -> int:
        """Number of rollout replicas that the plan asks for."""
        return len(self.assigned)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        value: dict[str, Any] = _PLAN.dump_python(self, mode="json")
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StepPlan":
        """The plan of ``to_json``. Raises pydantic's ``ValidationError``."""
        return _PLAN.validate_python(value)


_PLAN = TypeAdapter(StepPlan)


def plan_evenly(
    row_uids: Sequence[str], *, group_size: int, resources: Resources, num_actors: int | None = None
) -> StepPlan:
    """A plan without estimates: ``group_size`` completions of each row, in order, by equal counts (evaluation).

    ``num_actors`` overrides the number, which is one per compute thread.
    """
    items = tuple(WorkItem(row_uid=uid, samples=tuple(range(group_size))) for uid in row_uids)
    wanted = choose_num_actors(len(items), resources.num_threads, resources.max_actors)
    count = max(1, min(num_actors or wanted, len(items), resources.max_actors))
    return StepPlan(
        assigned=assign_in_order(items, count),
        rollout_threads=threads_of_actor(resources, count),
        learner_threads=resources.num_threads,
    )


def threads_of_actor(resources: Resources, num_actors: int) -> int:
    """Compute threads of each of so many actors."""
    return max(1, resources.num_threads // num_actors) if resources.shared_threads else resources.num_threads


@overload
def plan_step(row_uids: StepObservations, policy: SchedulePolicy) -> StepPlan: ...
@overload
def plan_step(
    row_uids: tuple[str, ...], *, group_size: int, resources: Resources, num_actors: int | None = None
) -> StepPlan: ...
def plan_step(
    row_uids: StepObservations | tuple[str, ...],
    policy: SchedulePolicy | None = None,
    *,
    group_size: int = 1,
    resources: Resources | None = None,
    num_actors: int | None = None,
) -> StepPlan:
    """The best plan for the observations by the policy."""
    if isinstance(row_uids, StepObservations):
        return _plan(row_uids, policy or SchedulePolicy())
    assert resources is not None
    return plan_evenly(row_uids, group_size=group_size, resources=resources, num_actors=num_actors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Samples of one group that stay together."""

    group: int
    samples: tuple[int, ...]
    load: Load


def _plan(observations: StepObservations, policy: SchedulePolicy) -> StepPlan:
    limits = _limits(observations, policy)
    profile = observations.profile or replace(PRIOR, max_num_sequences=observations.max_num_sequences)
    parts = _parts(observations, most=limits.max_actors)
    work = measure([part.load for part in parts])
    wanted = _num_actors(observations, policy, work, profile, limits)
    limits = replace(limits, min_actors=wanted[0], max_actors=wanted[1])
    table = candidates(work, profile, limits, policy.lambda_, unequal=policy.assignment == "sorted_unequal")
    chosen = best(table, limits)
    speed = profile_of(profile, chosen.num_actors, limits)
    actors = _assign(observations, policy, work, parts, speed, chosen.num_actors)
    actor_s = tuple(actor_seconds([part.load for part in actor], speed) for actor in actors)
    prefill = choose_prefill(_prefill_figures(observations, actors, speed, actor_s), policy.prefill, policy.lambda_)
    placements = place_actors(
        actor_s,
        observations.platform.ability,
        TransferFigures(model_s=observations.platform.weight_load_s, kv_s=prefill.transfer_s),
        prefills_apart=prefill.mode == "disaggregated",
        is_enabled=policy.locality,
    )
    return StepPlan(
        assigned=tuple(tuple(_item(observations, part) for part in actor) for actor in actors),
        rollout_threads=threads_of_actor(observations.resources, len(actors)),
        learner_threads=observations.resources.num_threads,
        expected=_expected(actor_s, limits),
        candidates=table,
        prefill=prefill,
        placement=placements.actors,
        unhonoured=placements.unhonoured,
    )


def _limits(observations: StepObservations, policy: SchedulePolicy) -> ActorLimits:
    """What bounds the number of actors, but for what the work needs."""
    resources, platform = observations.resources, observations.platform
    num_samples = len(observations.groups) * observations.group_size
    most = min(resources.max_actors, num_samples, policy.max_actors or num_samples)
    if resources.shared_threads and policy.max_actors is None:
        most = min(most, resources.num_threads)
    start_s = platform.cold_start_s + platform.weight_load_s
    return ActorLimits(
        min_actors=1,
        max_actors=max(1, most),
        units_per_actor=platform.units_per_actor,
        overhead_s=start_s + platform.drain_s,
        start_s=start_s,
        num_warm=observations.num_warm,
        shared_threads=resources.num_threads if resources.shared_threads else None,
        profile_threads=observations.profile_threads,
    )


def _num_actors(
    observations: StepObservations, policy: SchedulePolicy, work: Work, profile: DecodeProfile, limits: ActorLimits
) -> tuple[int, int]:
    """The least and the largest number of actors that are compared."""
    most = min(limits.max_actors, len(work.counts))
    if policy.num_actors is not None:
        forced = max(1, min(policy.num_actors, observations.resources.max_actors, len(work.counts)))
        return forced, forced
    if not policy.scaling:
        return most, most
    least = policy.min_actors if policy.min_actors is not None else fewest_with_room(work, profile)
    return min(least, most), most


def _parts(observations: StepObservations, most: int) -> list[_Part]:
    """Whole groups; where there are fewer than actors, each in slices of its samples."""
    slices = min(observations.group_size, -(-most // len(observations.groups)))
    if observations.resources.shared_threads:
        slices = 1
    return [
        _Part(
            group=number,
            samples=samples,
            load=Load(
                num_prompt_tokens=group.num_prompt_tokens,
                lengths=group.estimate.lengths[samples[0] : samples[-1] + 1],
            ),
        )
        for number, group in enumerate(observations.groups)
        for samples in assign_in_order(range(observations.group_size), slices)
    ]


def _assign(
    observations: StepObservations,
    policy: SchedulePolicy,
    work: Work,
    parts: Sequence[_Part],
    profile: DecodeProfile,
    num_actors: int,
) -> list[list[_Part]]:
    """The parts of each actor, by the policy's assignment; the longest first, except as the batch comes."""
    count = np.array([num_actors])
    match policy.assignment:
        case "in_order":
            return [list(actor) for actor in assign_in_order(list(parts), num_actors)]
        case "random":
            names = [observations.groups[part.group].row_uid for part in parts]
            places = assign_randomly(names, num_actors, observations.seed)
        case "balanced":
            seconds = [actor_seconds([part.load], profile) for part in parts]
            places = assign_balanced(seconds, num_actors)
        case "sorted_equal" | "sorted_unequal":
            timed = TimedWork(work, profile)
            unequal = policy.assignment == "sorted_unequal"
            cuts = (cheapest_cuts(timed, count)[0] if unequal else equal_cuts(timed.size, count))[0].tolist()
            order = work.order.tolist()
            places = tuple(tuple(order[cuts[actor] : cuts[actor + 1]]) for actor in range(num_actors))
    return [sorted((parts[place] for place in actor), key=lambda part: -part.load.lengths[-1]) for actor in places]


def _prefill_figures(
    observations: StepObservations, actors: Sequence[Sequence[_Part]], profile: DecodeProfile, actor_s: Sequence[float]
) -> PrefillFigures:
    platform = observations.platform
    tokens = [sum(part.load.num_prompt_tokens for part in actor) for actor in actors]
    once = sum(group.num_prompt_tokens for group in observations.groups)
    return PrefillFigures(
        actor_tokens=tokens,
        distinct_tokens=once if observations.num_tree_tokens is None else observations.num_tree_tokens,
        prefill_token_s=profile.prefill_token_s,
        apart_token_s=platform.apart_prefill_token_s or profile.prefill_token_s,
        kv_bytes_per_token=profile.kv_bytes_per_token,
        bandwidth_bytes_per_s=platform.bandwidth_bytes_per_s,
        round_trip_s=platform.round_trip_s,
        decode_s=max(seconds - profile.prefill_token_s * of for seconds, of in zip(actor_s, tokens, strict=True)),
        units_per_actor=platform.units_per_actor,
        apart_units=platform.learner_units,
        is_available=platform.has_prefill,
    )


def _expected(actor_s: tuple[float, ...], limits: ActorLimits) -> Expected:
    new = max(0, len(actor_s) - limits.num_warm)
    time_s = max(actor_s) + (limits.start_s if new else 0.0)
    replica_s = sum(actor_s) + new * limits.overhead_s
    unit_s = limits.units_per_actor * replica_s if limits.shared_threads is None else limits.shared_threads * time_s
    return Expected(time_s=time_s, replica_s=replica_s, unit_s=unit_s, actor_s=actor_s)


def _item(observations: StepObservations, part: _Part) -> WorkItem:
    return WorkItem(row_uid=observations.groups[part.group].row_uid, samples=part.samples)
