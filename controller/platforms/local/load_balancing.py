"""Which of several replicas gets a request. Pure but for the random choice, whose source is given.

Source: knative/serving ``pkg/activator/net/lb_policy.go``. ``in_flight``: requests per replica. A policy returns the
replica's index, or None where all are at their limit.
"""

from collections.abc import Sequence
from random import Random

FIRST_AVAILABLE_UP_TO = 3
"""Up to this concurrency limit the activator fills the first replica first; above it takes turns."""


def first_available(in_flight: Sequence[int], limit: int) -> int | None:
    """The first with room."""
    return next((index for index, number in enumerate(in_flight) if number < limit), None)


def round_robin(in_flight: Sequence[int], limit: int, start: int) -> int | None:
    """The first with room, counted from ``start`` and around."""
    turns = [(start + step) % len(in_flight) for step in range(len(in_flight))]
    return next((index for index in turns if in_flight[index] < limit), None)


def two_choices(in_flight: Sequence[int], random: Random) -> int | None:
    """The less loaded of two that are drawn; there is no limit."""
    if not in_flight:
        return None
    drawn = random.sample(range(len(in_flight)), min(2, len(in_flight)))
    return min(drawn, key=lambda index: in_flight[index])


def least_requests(in_flight: Sequence[int]) -> int | None:
    """The least loaded, as an ingress chooses that passes the activator by."""
    return min(range(len(in_flight)), key=lambda index: in_flight[index], default=None)
