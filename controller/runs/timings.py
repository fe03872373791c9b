"""Where a step's time went: compute on its critical path, and everything else. Pure."""

from collections.abc import Iterable, Sequence

from controller.runs.stage_client import CallRecord


def step_timings(calls: Sequence[CallRecord], step_s: float) -> dict[str, float]:
    """``timing_s/compute/{stage}`` is the compute of a stage's slowest replica; ``timing_s/plumbing`` the time in which
    no replica computes.
    """
    by_shard: dict[tuple[str, int], float] = {}
    for call in calls:
        shard = (call.key.stage, call.key.shard)
        by_shard[shard] = by_shard.get(shard, 0.0) + call.compute_s
    slowest: dict[str, float] = {}
    for (stage, _), compute_s in by_shard.items():
        slowest[stage] = max(slowest.get(stage, 0.0), compute_s)
    computing_s = _covered((call.started_at, call.started_at + call.compute_s) for call in calls)
    timings = {f"timing_s/compute/{stage}": compute_s for stage, compute_s in slowest.items()}
    return timings | {"timing_s/plumbing": max(0.0, step_s - computing_s)}


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union: replicas and stages that compute beside each other take their time once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
