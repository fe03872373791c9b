"""How many replicas there shall be: bounds, the first scale, the way to zero, and who is in the path. Pure.

Source: knative/serving ``pkg/reconciler/autoscaling/kpa/scaler.go`` and ``kpa.go``. ``autoscaler`` decides what the
load asks for; this decides what is asked of the machine. Times are seconds on any clock that does not go back.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from controller.platforms.local.autoscaler import UNKNOWN
from controller.platforms.local.pacing import Pacing
from controller.platforms.local.scaling_spec import ScalingSpec


class Activity(StrEnum):
    """Knative's condition ``Active`` of a pod autoscaler: Unknown, True, False."""

    ACTIVATING = "activating"
    ACTIVE = "active"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleState:
    """What one look leaves to the next."""

    activity: Activity
    since: float
    """When the activity became what it is."""
    num_replicas: int
    """Replicas asked for."""
    initialized: bool
    """Whether the first scale has been reached once: then the revision is ready for good."""
    activator_since: float | None
    """Since when the activator has been in the path. None: it is not."""
    timed_out: bool = False
    """Whether it was given up because it did not become ready."""
    zero_not_before: float = 0.0
    """When the last replica may go, as far as the platform's own rhythm is concerned."""
    look_at: float | None = None
    """When something may change without anybody's doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the pod autoscaler sees at one time."""

    now: float
    desired: int
    """The autoscaler's decision; -1: none yet."""
    excess_burst_capacity: int
    num_ready: int
    reachable: bool
    raised_minimum: int
    """A minimum above the annotation's, for as long as somebody holds it."""
    progress_deadline_s: float


def first_scale(spec: ScalingSpec, now: float) -> ScaleState:
    """The state of a new revision: its first replicas are on the way, or none is wanted."""
    return ScaleState(
        activity=Activity.ACTIVATING,
        since=now,
        num_replicas=spec.initial_scale,
        initialized=False,
        activator_since=now,
    )


def at_rest(state: ScaleState, now: float) -> ScaleState:
    """The state after all replicas were taken away from outside."""
    return replace(
        state,
        activity=Activity.INACTIVE,
        since=now,
        num_replicas=0,
        activator_since=now if state.activator_since is None else state.activator_since,
        look_at=None,
    )


def rescale(spec: ScalingSpec, pacing: Pacing, state: ScaleState, seen: Surroundings) -> ScaleState:
    """The next state; its ``num_replicas`` is to be seen to."""
    least = max(spec.min_scale, seen.raised_minimum) if seen.reachable else 0
    if spec.max_scale:
        least = min(least, spec.max_scale)
    state = replace(state, look_at=None)
    state, wanted = _want(spec, pacing, state, seen, least)
    in_path = (
        wanted == 0 or seen.excess_burst_capacity < 0 or (wanted == UNKNOWN and state.activity is Activity.INACTIVE)
    )
    since = (seen.now if state.activator_since is None else state.activator_since) if in_path else None
    return _note_activity(spec, replace(state, activator_since=since), seen, least, wanted)


def _want(
    spec: ScalingSpec, pacing: Pacing, state: ScaleState, seen: Surroundings, least: int
) -> tuple[ScaleState, int]:
    """Apply the bounds and ask for the number, unless it is zero, which takes its time."""
    if seen.desired < 0 and state.activity is not Activity.ACTIVATING:
        return state, UNKNOWN
    if not state.initialized and seen.now < _activation_ends_at(pacing, state, seen):
        least = max(least, spec.initial_scale if spec.initial_scale > 1 else 0)
    wanted = max(least, seen.desired)
    if spec.max_scale:
        wanted = min(wanted, spec.max_scale)
    if wanted > 0:
        return replace(state, num_replicas=wanted), wanted
    match state.activity:
        case Activity.ACTIVATING:
            return _give_up_activation(pacing, state, seen)
        case Activity.ACTIVE:
            return _deactivate(spec, pacing, state, seen)
        case Activity.INACTIVE:
            return _take_last(spec, state, seen)


def _give_up_activation(pacing: Pacing, state: ScaleState, seen: Surroundings) -> tuple[ScaleState, int]:
    """What is on its way is let be until it has had its time."""
    at = _activation_ends_at(pacing, state, seen)
    if seen.now >= at:
        return replace(state, num_replicas=0), 0
    return replace(state, look_at=at), UNKNOWN


def _activation_ends_at(pacing: Pacing, state: ScaleState, seen: Surroundings) -> float:
    """When a revision that does not become ready is given up; at once where it is not on its way there."""
    if state.activity is not Activity.ACTIVATING:
        return seen.now
    return state.since + seen.progress_deadline_s + pacing.activation_buffer_s


def _deactivate(spec: ScalingSpec, pacing: Pacing, state: ScaleState, seen: Surroundings) -> tuple[ScaleState, int]:
    """After a window of activity it is found idle, and its last replica stays for the moment; before, one is kept."""
    at = state.since + spec.window_s
    if seen.now < at:
        return replace(state, num_replicas=1, look_at=at), 1
    wait_s = pacing.probe_s if state.activator_since is None else pacing.requeue_s
    return replace(state, zero_not_before=seen.now + wait_s, look_at=seen.now + wait_s), 0


def _take_last(spec: ScalingSpec, state: ScaleState, seen: Surroundings) -> tuple[ScaleState, int]:
    """Zero once retention is over and the activator has been in the path for the grace period (the fast path), or
    once the revision has been idle for both."""
    grace_s = spec.cluster.scale_to_zero_grace_period_s
    in_path_since = seen.now if state.activator_since is None else state.activator_since
    slow = state.since + max(grace_s, spec.retention_s)
    fast = max(state.since + spec.retention_s, in_path_since + grace_s)
    at = max(state.zero_not_before, min(slow, fast))
    if state.num_replicas == 0 or seen.now >= at:
        return replace(state, num_replicas=0), 0
    return replace(state, look_at=at), 0


def _note_activity(spec: ScalingSpec, state: ScaleState, seen: Surroundings, least: int, wanted: int) -> ScaleState:
    """The table of ``computeActiveCondition``."""
    threshold = max(least, 1 if state.initialized else spec.initial_scale)
    if seen.num_ready >= threshold:
        state = replace(state, initialized=True)
    if wanted == 0 or threshold == 0:
        timed_out = state.activity is Activity.ACTIVATING and threshold > 0
        return _become(replace(state, timed_out=timed_out or state.timed_out), Activity.INACTIVE, seen.now)
    if wanted == UNKNOWN and state.activity is Activity.INACTIVE:
        return state
    activity = Activity.ACTIVE if seen.num_ready >= threshold else Activity.ACTIVATING
    return _become(replace(state, timed_out=False), activity, seen.now)


def _become(state: ScaleState, activity: Activity, now: float) -> ScaleState:
    return state if state.activity is activity else replace(state, activity=activity, since=now)
