"""The plan of one step: which actor samples which prompts, with how many threads, and what that is expected to take.

Pure: observations and a policy in, a plan out. The policies themselves are one file each beside this one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller.scheduling.actor_count import (
    ActorLimits,
    best,
    choose_num_actors,
    compare,
    fewest_in_waves,
    fewest_with_room,
    numbers_to_compare,
    profile_of,
)
from controller.scheduling.assignment import Arrangement, arrange, assign_in_order
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.locality import TransferFigures, place_actors
from controller.scheduling.observations import (
    PlatformFigures,
    PromptGroup,
    Resources,
    SchedulePolicy,
    StepObservations,
)
from controller.scheduling.parts import Parts, sliced_groups, whole_groups
from controller.scheduling.pipelining import ExecutionHint, Part, execution_hint
from controller.scheduling.prefill_choice import PrefillFigures, PrefillPlan, choose_prefill
from controller.scheduling.splitting import split_long_groups
from controller.scheduling.step_plan import Expected, StepPlan
from controller.scheduling.technique_figures import technique_figures
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


def plan_step(observations: StepObservations, policy: SchedulePolicy) -> StepPlan:
    """The best plan for the observations by the policy. Raises ``ValueError`` without a group."""
    if not observations.groups:
        raise ValueError("a step has at least one prompt")
    profile = observations.profile or replace(PRIOR, max_num_sequences=observations.max_num_sequences)
    limits = _limits(observations, policy)
    batches = _batches(observations, policy, profile, limits)
    by_work = [(parts.work, numbers) for parts, numbers in batches]
    compared = compare(by_work, profile, limits, policy.lambda_, policy.assignment)
    chosen = best(compared.table, limits)
    num_actors = chosen.num_actors
    parts = next(parts for parts, numbers in batches if num_actors in numbers)
    speed = profile_of(profile, num_actors, limits)
    assignment = chosen.assignment if policy.assignment == "auto" else policy.assignment
    if assignment in ("sorted_unequal", "sorted_equal"):
        arrangement = compared.arrangements[num_actors]
    else:
        arrangement = arrange(parts.work, speed, num_actors, assignment, observations.seed)
    if policy.assignment in ("auto", "sorted_unequal"):
        shared = observations.resources.shared_threads
        parts, arrangement = split_long_groups(parts, arrangement, speed, policy.lambda_, shared_threads=shared)
    prefill = choose_prefill(_prefill_figures(observations, parts, arrangement, speed), policy.prefill, policy.lambda_)
    if prefill.is_apart:
        fetching = replace(speed, prefill_token_s=_fetch_token_s(observations, profile))
        arrangement = replace(arrangement, seconds=arrangement.timed(parts.work, fetching))
    actor_s = tuple(arrangement.seconds.tolist())
    placements = place_actors(
        actor_s,
        observations.platform.ability,
        _transfers(observations, prefill),
        prefills_apart=prefill.is_apart,
        is_enabled=policy.locality,
    )
    expected = _expected(actor_s, prefill, limits)
    return StepPlan(
        assigned=_items(parts, arrangement, policy),
        rollout_threads=threads_of_actor(observations.resources, len(arrangement)),
        learner_threads=observations.resources.num_threads,
        expected=expected,
        candidates=compared.table,
        prefill=prefill,
        placement=placements.actors,
        unhonoured=placements.unhonoured,
        execution=_execution(observations, expected),
        techniques=technique_figures(observations, policy, parts, arrangement, compared.table, prefill, speed),
    )


def threads_of_actor(resources: Resources, num_actors: int) -> int:
    """Compute threads of each of so many actors."""
    return max(1, resources.num_threads // num_actors) if resources.shared_threads else resources.num_threads


def _limits(observations: StepObservations, policy: SchedulePolicy) -> ActorLimits:
    """What bounds the number of actors, but for the room that the work needs."""
    resources, platform = observations.resources, observations.platform
    num_samples = len(observations.groups) * observations.group_size
    most = min(resources.max_actors, num_samples, policy.max_actors or num_samples)
    if resources.shared_threads and policy.max_actors is None:
        most = min(most, resources.num_threads)
    beside_learner = policy.locality and platform.ability.shares_learner
    start_s = platform.cold_start_s + platform.weight_load_s
    return ActorLimits(
        min_actors=policy.min_actors,
        max_actors=max(1, most),
        units_per_actor=platform.units_per_actor,
        overhead_s=start_s + platform.drain_s,
        start_s=start_s,
        # The actor in the learner's process is up, and has the weights.
        num_warm=max(observations.num_warm, int(beside_learner)),
        shared_threads=resources.num_threads if resources.shared_threads else None,
        profile_threads=observations.profile_threads,
        head_start_s=_transfers(observations, None).head_start_s if beside_learner else None,
    )


def _batches(
    observations: StepObservations, policy: SchedulePolicy, profile: DecodeProfile, limits: ActorLimits
) -> list[tuple[Parts, Sequence[int]]]:
    """The batch in whole groups for as many actors as there are groups, and in slices for more; each with the numbers
    of actors to compare."""
    groups, size = observations.groups, observations.group_size
    whole = whole_groups(groups, size)
    if policy.num_actors is not None:
        least = most = max(1, min(policy.num_actors, observations.resources.max_actors, len(groups) * size))
    elif not policy.scaling:
        least = most = min(limits.max_actors, len(groups))
    else:
        most = limits.max_actors
        least = min(most, limits.min_actors or fewest_in_waves(fewest_with_room(whole.work, profile), most))
    numbers = numbers_to_compare(least, most)
    batches = [(whole, [number for number in numbers if number <= len(groups)])]
    for slices in range(2, -(-most // len(groups)) + 1):
        in_slices = [number for number in numbers if -(-number // len(groups)) == slices]
        if in_slices:
            batches.append((sliced_groups(groups, size, [slices] * len(groups)), in_slices))
    return [(parts, numbers) for parts, numbers in batches if numbers]


def _prefill_figures(
    observations: StepObservations, parts: Parts, arrangement: Arrangement, profile: DecodeProfile
) -> PrefillFigures:
    platform = observations.platform
    prompts = parts.work.prompt_tokens[arrangement.places]
    sums = [int(part.sum()) for part in np.split(prompts, arrangement.cuts[1:-1])]
    once = sum(group.num_prompt_tokens for group in observations.groups)
    decode_s = arrangement.seconds - profile.prefill_token_s * np.array(sums)
    return PrefillFigures(
        actor_tokens=sums,
        distinct_tokens=once if observations.num_tree_tokens is None else observations.num_tree_tokens,
        prefill_token_s=profile.prefill_token_s,
        apart_token_s=platform.apart_prefill_token_s or profile.prefill_token_s,
        kv_bytes_per_token=profile.kv_bytes_per_token,
        bandwidth_bytes_per_s=platform.bandwidth_bytes_per_s,
        round_trip_s=platform.round_trip_s,
        decode_s=float(decode_s.max()),
        units_per_actor=platform.units_per_actor,
        apart_units=platform.learner_units,
        is_available=platform.has_prefill,
    )


def _fetch_token_s(observations: StepObservations, profile: DecodeProfile) -> float:
    """Seconds of fetching a token's keys and values; 0 where that is not measured."""
    bandwidth = observations.platform.bandwidth_bytes_per_s
    return profile.kv_bytes_per_token / bandwidth if bandwidth else 0.0


def _transfers(observations: StepObservations, prefill: PrefillPlan | None) -> TransferFigures:
    return TransferFigures(
        prefill_s=prefill.apart_s if prefill else 0.0,
        model_s=observations.platform.weight_load_s,
        kv_s=prefill.transfer_s if prefill else 0.0,
    )


def _expected(actor_s: tuple[float, ...], prefill: PrefillPlan, limits: ActorLimits) -> Expected:
    """Prefill apart goes on while actors start."""
    new = max(0, len(actor_s) - limits.num_warm)
    time_s = max(actor_s) + max(prefill.apart_s, limits.start_s if new else 0.0)
    replica_s = sum(actor_s) + new * limits.overhead_s
    unit_s = limits.units_per_actor * replica_s if limits.shared_threads is None else limits.shared_threads * time_s
    return Expected(time_s=time_s, replica_s=replica_s, unit_s=unit_s, actor_s=actor_s)


def _execution(observations: StepObservations, expected: Expected) -> ExecutionHint | None:
    """Sampling is a part whose actors divide its work; it is ready in pieces, which are groups."""
    if not observations.other_parts:
        return None
    sampling = Part(name="rollout", unit_s=expected.time_s * observations.num_devices)
    needed = max(part.min_devices for part in observations.other_parts)
    return execution_hint(
        (sampling, *observations.other_parts),
        max(needed, observations.num_devices),
        num_pieces=len(observations.groups),
    )


def _items(parts: Parts, arrangement: Arrangement, policy: SchedulePolicy) -> tuple[tuple[WorkItem, ...], ...]:
    """Each actor's, the longest first; as the batch comes where the policy knows no lengths."""
    order = parts.work.order.tolist()
    of_actors = ([order[place] for place in arrangement.of_actor(actor)] for actor in range(len(arrangement)))
    if policy.assignment in ("in_order", "random"):
        of_actors = (sorted(actor) for actor in of_actors)
    return tuple(parts.items(actor) for actor in of_actors)
