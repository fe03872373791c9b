"""What a sampling round really took, and how far its plan was off. Pure."""

from collections.abc import Sequence

from controller.platforms.base import ReplicaLife
from controller.runs.observed import ObservedRound
from controller.runs.plan_records import Measured


def measure_round(observed: ObservedRound) -> Measured:
    """What a round really took, against what its plan expected."""
    sampled = observed.sampled
    observations, expected = sampled.planned.observations, sampled.planned.plan.expected
    time_s = sampled.sampled_at - sampled.asked_at
    replica_s = held_seconds(observed.lives, sampled.asked_at, sampled.sampled_at)
    resources = observations.resources
    unit_s = (
        resources.num_threads * time_s
        if resources.shared_threads
        else observations.platform.units_per_actor * replica_s
    )
    return Measured(
        time_s=time_s,
        replica_s=replica_s,
        unit_s=unit_s,
        time_error=None if expected is None else relative_error(expected.time_s, time_s),
        cost_error=None if expected is None else relative_error(expected.unit_s, unit_s),
    )


def held_seconds(lives: Sequence[ReplicaLife], start: float, end: float) -> float:
    """Seconds for which the replicas held their resources between two Unix times, all together."""
    total = 0.0
    for life in lives:
        if life.started_at is not None:
            until = end if life.ended_at is None else min(end, life.ended_at)
            total += max(0.0, until - max(start, life.started_at))
    return total


def relative_error(expected: float, measured: float) -> float | None:
    """(expected - measured) / measured; ``None`` of nothing."""
    return (expected - measured) / measured if measured > 0 else None
