"""Where a step's time went: compute on its critical path, and everything else. Pure."""

from collections.abc import Sequence

from controller.runs.stage_client import CallRecord


def step_timings(calls: Sequence[CallRecord], step_s: float) -> dict[str, float]:
    """``timing_s/compute/{stage}`` is the compute of a stage's slowest replica; ``timing_s/plumbing`` what is left.

    Stages follow each other and the replicas of one stage run beside each other, so the critical path's compute is the
    sum over stages of the slowest shard.
    """
    by_shard: dict[tuple[str, int], float] = {}
    for call in calls:
        shard = (call.key.stage, call.key.shard)
        by_shard[shard] = by_shard.get(shard, 0.0) + call.compute_s
    slowest: dict[str, float] = {}
    for (stage, _), compute_s in by_shard.items():
        slowest[stage] = max(slowest.get(stage, 0.0), compute_s)
    timings = {f"timing_s/compute/{stage}": compute_s for stage, compute_s in slowest.items()}
    return timings | {"timing_s/plumbing": max(0.0, step_s - sum(slowest.values()))}
