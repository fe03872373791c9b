"""How many replicas the load asks for: the decider of Knative's pod autoscaler, as pure functions.

Source: knative/serving ``pkg/autoscaler/scaling/autoscaler.go`` and ``multiscaler.go``. Bounds and the way to zero
come after it, in ``pod_autoscaler``. Times are seconds on any clock that does not go back.
"""

import math
from dataclasses import dataclass, replace

from controller.platforms.local.scaling_spec import ScalingSpec

UNKNOWN = -1
"""A decider that has seen no metrics yet wants neither more nor less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Mean concurrency over the two windows."""

    stable: float
    panic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the autoscaler sees at one time."""

    now: float
    num_ready: int
    load: Load | None
    """None: replicas that should have reported have not."""
    reachable: bool = True
    """Whether requests can still reach the revision. Where not, it may shrink at any rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerState:
    """What one decision leaves to the next."""

    desired: int = UNKNOWN
    """Replicas wanted, before the bounds."""
    excess_burst_capacity: int = -1
    """Room beyond the target burst. Negative: the activator has to be in the path."""
    panic_since: float | None = None
    max_panic_replicas: int = 0
    recent: tuple[tuple[float, int], ...] = ()
    """(time, desired) within ``scale_down_delay_s``."""


def started(spec: ScalingSpec, *, now: float, num_ready: int) -> AutoscalerState:
    """The state of an autoscaler that has just started, or started again and lost its metrics.

    With more than one replica it begins in panic, which keeps them until it knows better.
    """
    capacity = spec.target_burst_capacity
    excess = capacity if capacity in (-1, 0) else spec.total_concurrency - capacity
    panics = num_ready > 1
    return AutoscalerState(
        excess_burst_capacity=int(excess),
        panic_since=now if panics else None,
        max_panic_replicas=num_ready if panics else 0,
    )


def decide(spec: ScalingSpec, state: AutoscalerState, seen: Observation) -> AutoscalerState:
    """The next state; its ``desired`` is the decision. Without metrics the last one stands."""
    if seen.load is None:
        return state
    num_ready = max(1, seen.num_ready)
    highest = math.ceil(spec.cluster.max_scale_up_rate * num_ready)
    lowest = math.floor(num_ready / spec.cluster.max_scale_down_rate) if seen.reachable else 0

    def wanted(concurrency: float) -> int:
        needed = math.ceil(concurrency / spec.target_concurrency)
        within_rates = min(max(needed, lowest), highest)
        # A floor for as long as anything is seen, not only on the way up from zero.
        return max(within_rates, spec.activation_scale) if needed > 0 and spec.activation_scale > 1 else within_rates

    stable, panic = wanted(seen.load.stable), wanted(seen.load.panic)
    burst = math.ceil(seen.load.panic / spec.target_concurrency) / num_ready >= spec.panic_threshold
    state = _panic(state, spec, seen.now, burst=burst, wanted=max(stable, panic))
    desired = state.max_panic_replicas if state.panic_since is not None else stable
    state, desired = _delay_scale_down(state, spec, seen.now, desired)
    return replace(state, desired=desired, excess_burst_capacity=_excess_burst_capacity(spec, seen))


def _panic(state: AutoscalerState, spec: ScalingSpec, now: float, *, burst: bool, wanted: int) -> AutoscalerState:
    """Enter, prolong or leave panic. While it lasts the number only rises."""
    since = state.panic_since
    if burst:
        since = now
    elif since is not None and since + spec.window_s < now:
        since = None
    if since is None:
        return replace(state, panic_since=None, max_panic_replicas=0)
    return replace(state, panic_since=since, max_panic_replicas=max(state.max_panic_replicas, wanted))


def _delay_scale_down(
    state: AutoscalerState, spec: ScalingSpec, now: float, desired: int
) -> tuple[AutoscalerState, int]:
    """The largest decision within the delay stands. It is recorded after the rates, so every halving waits anew."""
    if spec.scale_down_delay_s <= 0:
        return replace(state, recent=()), desired
    kept = tuple(entry for entry in state.recent if now - entry[0] < spec.scale_down_delay_s)
    recent = (*kept, (now, desired))
    return replace(state, recent=recent), max(number for _, number in recent)


def _excess_burst_capacity(spec: ScalingSpec, seen: Observation) -> int:
    """Capacity of the ready replicas less the burst to be ready for and what is in flight."""
    if seen.load is None or spec.target_burst_capacity < 0:
        return -1
    if spec.target_burst_capacity == 0:
        return 0
    return math.floor(seen.num_ready * spec.total_concurrency - spec.target_burst_capacity - seen.load.panic)
