"""What a window of time cost: replica seconds by stage, split into busy, idle, cold and draining (DESIGN, rule 8).

Pure. A replica is cold from its scheduling until it is ready, busy while it works on a call, draining after it was told
to end, and idle in between. The parts of a replica add up to its life in the window.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import add

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
    """Replicas that lived in the window; of several windows, the most in one."""
    num_inferred: int = 0
    """Of these, replicas with a time that was inferred, not observed."""

    def __add__(self, other: "StageCost") -> "StageCost":
        """Cost of two windows."""
        return _sum(self, other, max)


AMOUNTS = ("busy_s", "idle_s", "cold_s", "draining_s", "cpu_seconds", "gpu_seconds", "usd")
"""Fields of a cost that add up, whether over replicas or over windows."""


def account(
    lives: Iterable[ReplicaLife], calls: Iterable[CallRecord], *, start: float, end: float, price: Price
) -> dict[str, StageCost]:
    """Cost of each function between two Unix times."""
    busy: dict[str, list[tuple[float, float]]] = {}
    for call in calls:
        busy.setdefault(call.instance, []).append((call.started_at, call.ended_at))
    costs: dict[str, StageCost] = {}
    for life in lives:
        cost = _replica_cost(life, busy.get(life.instance, []), start, end, price)
        if cost is not None:
            costs[life.function] = _sum(costs.get(life.function, StageCost()), cost, add)
    return costs


def add_ledgers(first: dict[str, StageCost], second: dict[str, StageCost]) -> dict[str, StageCost]:
    """The sum of two windows, by function."""
    return {name: first.get(name, StageCost()) + second.get(name, StageCost()) for name in sorted({*first, *second})}


def _replica_cost(
    life: ReplicaLife, calls: Sequence[tuple[float, float]], start: float, end: float, price: Price
) -> StageCost | None:
    # A replica holds its resources from the moment that it has a place; a pending one holds nothing.
    if life.started_at is None:
        return None
    began = max(life.started_at, start)
    ended = min(end if life.ended_at is None else life.ended_at, end)
    if ended <= began:
        return None
    # The phases in their order, within the window: what one loses to a wrong clock, its neighbour has.
    ready = _between(began, life.ready_at, ended)
    draining = _between(ready, life.draining_at, ended)
    busy_serving_s, busy_draining_s = _union(calls, ready, draining), _union(calls, draining, ended)
    held_s = ended - began
    return StageCost(
        busy_s=busy_serving_s + busy_draining_s,
        idle_s=draining - ready - busy_serving_s,
        cold_s=ready - began,
        draining_s=ended - draining - busy_draining_s,
        cpu_seconds=held_s * life.num_cpus,
        gpu_seconds=held_s * life.num_gpus,
        usd=price.usd(held_s * life.num_cpus, held_s * life.num_gpus),
        num_replicas=1,
        num_inferred=int(life.inferred),
    )


def _sum(first: StageCost, second: StageCost, count: Callable[[int, int], int]) -> StageCost:
    """Both costs; ``count`` tells how many replicas they were."""
    return StageCost(
        num_replicas=count(first.num_replicas, second.num_replicas),
        num_inferred=count(first.num_inferred, second.num_inferred),
        **{name: getattr(first, name) + getattr(second, name) for name in AMOUNTS},
    )


def _between(earliest: float, moment: float | None, latest: float) -> float:
    """The moment, within bounds; one that has not come is at the end."""
    return latest if moment is None else min(max(moment, earliest), latest)


def _union(intervals: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Length of the union of the intervals within a window."""
    total, reached = 0.0, start
    for first, last in sorted(intervals):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total
