"""What a window of time cost: replica seconds by stage, split into busy, idle, cold and draining (DESIGN, rule 8).

Pure. A replica is cold from its scheduling until it is ready, busy while it works on a call, draining after it was told
to end, and idle in between. The parts of a replica add up to its life in the window.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from controller.platforms.base import ReplicaLife
from controller.runs.stage_client import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money for held resources."""

    cpu_hour_usd: float
    gpu_hour_usd: float

    def usd(self, cpu_seconds: float, gpu_seconds: float) -> float:
        """Price of so many held seconds."""
        return (cpu_seconds * self.cpu_hour_usd + gpu_seconds * self.gpu_hour_usd) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Cost of one function in a window."""

    busy_s: float = 0.0
    idle_s: float = 0.0
    cold_s: float = 0.0
    draining_s: float = 0.0
    cpu_seconds: float = 0.0
    """Held seconds times the CPUs that the replica requests."""
    gpu_seconds: float = 0.0
    usd: float = 0.0
    num_replicas: int = 0
    """Replicas that lived in the window."""
    num_inferred: int = 0
    """Of these, replicas with a time that was inferred, not observed."""

    def __add__(self, other: "StageCost") -> "StageCost":
        ours, theirs = asdict(self), asdict(other)
        total = {name: ours[name] + theirs[name] for name in ours}
        total["num_replicas"] = max(self.num_replicas, other.num_replicas)
        total["num_inferred"] = max(self.num_inferred, other.num_inferred)
        return StageCost(**total)


def account(
    lives: Iterable[ReplicaLife], calls: Sequence[CallRecord], *, start: float, end: float, price: Price
) -> dict[str, StageCost]:
    """Cost of each function between two Unix times."""
    busy: dict[str, list[tuple[float, float]]] = {}
    for call in calls:
        busy.setdefault(call.instance, []).append((call.started_at, call.ended_at))
    costs: dict[str, StageCost] = {}
    for life in lives:
        cost = _replica_cost(life, busy.get(life.instance, []), start, end, price)
        if cost is not None:
            costs[life.function] = _joined(costs.get(life.function, StageCost()), cost)
    return costs


def add_ledgers(first: dict[str, StageCost], second: dict[str, StageCost]) -> dict[str, StageCost]:
    """The sum of two windows, by function."""
    return {name: first.get(name, StageCost()) + second.get(name, StageCost()) for name in sorted({*first, *second})}


def _replica_cost(
    life: ReplicaLife, calls: list[tuple[float, float]], start: float, end: float, price: Price
) -> StageCost | None:
    # A replica holds its resources from the moment that it has a place; a pending one holds nothing.
    if life.started_at is None:
        return None
    ended = min(end, life.ended_at if life.ended_at is not None else end)
    held_s = _overlap(life.started_at, ended, start, end)
    if held_s <= 0:
        return None
    ready = life.ready_at if life.ready_at is not None else ended
    draining = life.draining_at if life.draining_at is not None else ended
    cold_s = _overlap(life.started_at, min(ready, ended), start, end)
    serving_from, serving_to = max(ready, start), min(ended, end)
    busy_s = _union(calls, serving_from, serving_to)
    busy_before_drain_s = _union(calls, serving_from, min(draining, serving_to))
    drain_s = _overlap(max(draining, ready), ended, start, end) - (busy_s - busy_before_drain_s)
    return StageCost(
        busy_s=busy_s,
        cold_s=cold_s,
        draining_s=max(0.0, drain_s),
        idle_s=max(0.0, held_s - busy_s - cold_s - max(0.0, drain_s)),
        cpu_seconds=held_s * life.num_cpus,
        gpu_seconds=held_s * life.num_gpus,
        usd=price.usd(held_s * life.num_cpus, held_s * life.num_gpus),
        num_replicas=1,
        num_inferred=int(life.inferred),
    )


def _joined(cost: StageCost, replica: StageCost) -> StageCost:
    total = cost + replica
    fields = asdict(total) | {
        "num_replicas": cost.num_replicas + replica.num_replicas,
        "num_inferred": cost.num_inferred + replica.num_inferred,
    }
    return StageCost(**fields)


def _overlap(first: float, last: float, start: float, end: float) -> float:
    return max(0.0, min(last, end) - max(first, start))


def _union(intervals: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Length of the union of the intervals within a window."""
    total, reached = 0.0, start
    for first, last in sorted(intervals):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total
