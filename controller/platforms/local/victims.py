"""Which replicas a scale-down takes, as a Kubernetes ReplicaSet chooses them. Pure.

Source: kubernetes ``pkg/controller/controller_utils.go`` (``ActivePodsWithRanks``). It looks at nothing but these:
a busy replica is not spared. Where Kubernetes compares ages it rounds them to powers of two; here the newest goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.contracts.ids import InstanceId

FINISHED_COST = -100
"""Deletion cost of a replica that has no more to do: it goes before the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica that may be taken."""

    instance: InstanceId
    placed: bool
    """Whether it has a place on the machine."""
    ready: bool
    deletion_cost: int
    """``controller.kubernetes.io/pod-deletion-cost``: the lower goes first."""
    ready_at: float
    """0 where it is not ready."""
    scheduled_at: float


def choose_victims(candidates: Sequence[Candidate], number: int) -> list[InstanceId]:
    """The first so many to go: without a place, not ready, of low cost, ready for the shortest time, newest.

    ``candidates`` come in the order of their scheduling, which decides between equals.
    """
    if number <= 0:
        return []
    newest_first = list(candidates)[::-1]
    return [candidate.instance for candidate in sorted(newest_first, key=_rank)[:number]]


def _rank(candidate: Candidate) -> tuple[bool, bool, int, float, float]:
    return (
        candidate.placed,
        candidate.ready,
        candidate.deletion_cost,
        -candidate.ready_at,
        -candidate.scheduled_at,
    )
