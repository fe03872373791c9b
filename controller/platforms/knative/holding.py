"""Raised minima: for how long, by whom, and when one may be lowered. Pure.

A minimum is an annotation of a *Revision* (no new revision comes of it). Beside it stand the time until which it may
last, who raised it, and what it was before: so whoever finds it after that time can lower it, and a controller that
died holds no GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.platforms.knative.function_reading import MIN_SCALE
from controller.platforms.knative.kube_resources import KubeObject, annotations_of
from controller.platforms.knative.times import from_text, to_text

HOLD_UNTIL = "rlhfless.dev/hold-until"
HELD_BY = "rlhfless.dev/held-by"
MIN_SCALE_BEFORE = "rlhfless.dev/min-scale-before"
"""Empty where the revision had no minimum of its own."""

CLOCK_SKEW_S = 5.0
"""By which the clocks of two nodes may differ."""
TICK_S = 2.0
"""Seconds between two decisions of Knative's autoscaler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A minimum that somebody asked for."""

    num_replicas: int
    until: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The minimum that a revision should have now."""

    num_replicas: int
    until: float
    """Unix seconds after which it may be lowered by anybody; 0 where there is none."""
    look_at: float | None
    """Unix seconds at which the answer may change by itself."""


def settle_s(window_s: float) -> float:
    """Seconds after which the autoscaler's average shows a request for what it is.

    A window that begins with a burst starts from a bucket that has seen one request only, so N requests are known for
    N after a whole window; lowered before, a minimum takes busy replicas away and starts others in their place
    (measured: 2 s after 4 requests had started two busy ones went and two new ones came).
    """
    return window_s + 2 * TICK_S


def wanted_minimum(
    holds: Iterable[Hold], sent_at: Sequence[float], *, now: float, settled_after_s: float, raised: int
) -> Wanted:
    """What is held now, and what must not be lowered yet.

    ``sent_at``: when the requests in flight were sent; ``raised``: the minimum that is in force. It falls to the
    number of requests in flight at most, for as long as the autoscaler may not have seen all of them.
    """
    live = [hold for hold in holds if hold.until > now and hold.num_replicas > 0]
    seen_at = max(sent_at, default=0.0) + settled_after_s
    unseen = min(raised, len(sent_at)) if seen_at > now else 0
    number = max([unseen, *(hold.num_replicas for hold in live)])
    if number == 0:
        return Wanted(num_replicas=0, until=0.0, look_at=None)
    ends = [hold.until for hold in live] + ([seen_at] if unseen else [])
    return Wanted(num_replicas=number, until=max(ends), look_at=min(ends))


def raised(revision: KubeObject, wanted: Wanted, holder: str) -> Mapping[str, Any]:
    """The merge patch that gives the revision a minimum for a time."""
    annotations = annotations_of(revision)
    before = annotations.get(MIN_SCALE_BEFORE, annotations.get(MIN_SCALE, ""))
    least = int(before) if before.isdecimal() else 0
    return _annotated(
        {
            MIN_SCALE: str(max(wanted.num_replicas, least)),
            MIN_SCALE_BEFORE: before,
            HOLD_UNTIL: to_text(wanted.until),
            HELD_BY: holder,
        }
    )


def lowered(revision: KubeObject) -> Mapping[str, Any] | None:
    """The merge patch that gives the revision its own minimum back; None where nobody holds it."""
    annotations = annotations_of(revision)
    if HOLD_UNTIL not in annotations:
        return None
    return _annotated(
        {
            MIN_SCALE: annotations.get(MIN_SCALE_BEFORE) or None,
            MIN_SCALE_BEFORE: None,
            HOLD_UNTIL: None,
            HELD_BY: None,
        }
    )


def given_back(revision: KubeObject, holder: str) -> Mapping[str, Any] | None:
    """As ``lowered``, where this holder was the last to raise it: what another one has raised since is not touched."""
    return lowered(revision) if annotations_of(revision).get(HELD_BY) == holder else None


def is_held(revision: KubeObject) -> bool:
    """Whether somebody has raised its minimum."""
    return HOLD_UNTIL in annotations_of(revision)


def is_overdue(revision: KubeObject, now: float) -> bool:
    """Whether its minimum was raised until a time that is over, or until one that nobody can read.

    The time was written by another clock, which may be behind this one.
    """
    until = from_text(annotations_of(revision).get(HOLD_UNTIL))
    return is_held(revision) and (until is None or until + CLOCK_SKEW_S < now)


def _annotated(annotations: Mapping[str, str | None]) -> Mapping[str, Any]:
    return {"metadata": {"annotations": annotations}}
