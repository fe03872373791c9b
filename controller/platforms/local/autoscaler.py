"""How many replicas a function needs: Knative's pod autoscaler (KPA) as pure decisions.

Source: knative/serving ``pkg/autoscaler/scaling/autoscaler.go`` and ``pkg/reconciler/autoscaling/kpa/scaler.go``.
The proxy is always in the path here, so excess burst capacity and the scale-to-zero grace period decide nothing.
Times are seconds on any clock that does not go back.
"""

import math
from dataclasses import dataclass, replace

TICK_S = 2.0
"""Time between two decisions. A request at zero asks for one at once."""

_CONCURRENCY_WITHOUT_LIMIT = 100.0
_MAX_SCALE_UP_RATE = 1000.0
_MAX_SCALE_DOWN_RATE = 2.0
_MIN_TARGET = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSpec:
    """The autoscaling annotations of a revision, with Knative's defaults. Scales of 0: no bound.

    ``initial_scale`` is 0 here: nothing starts before it is needed (Knative: 1).
    """

    container_concurrency: int = 0
    target: float | None = None
    utilization: float = 0.7
    window_s: float = 60.0
    panic_window_fraction: float = 0.1
    panic_threshold: float = 2.0
    min_scale: int = 0
    max_scale: int = 0
    initial_scale: int = 0
    activation_scale: int = 1
    scale_down_delay_s: float = 0.0
    retention_s: float = 0.0
    """How long the last replica is kept after the decision for zero."""

    @property
    def target_concurrency(self) -> float:
        """Requests per replica that the autoscaler aims at: (target or limit) · utilization."""
        total = float(self.container_concurrency) or _CONCURRENCY_WITHOUT_LIMIT
        if self.target is not None:
            total = min(self.target, total) if self.container_concurrency else self.target
        return max(_MIN_TARGET, total * self.utilization)

    @property
    def panic_window_s(self) -> float:
        """The short window that bursts are seen in: whole seconds, at least one."""
        return max(1.0, float(math.floor(self.window_s * self.panic_window_fraction + 0.5)))

    def bounded(self, num_replicas: int, *, raised_minimum: int = 0) -> int:
        """The number within minimum and maximum; a raised minimum never exceeds the maximum."""
        lowest = max(self.min_scale, raised_minimum, num_replicas)
        return min(lowest, self.max_scale) if self.max_scale else lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the autoscaler sees at one time."""

    now: float
    num_ready: int
    stable_concurrency: float
    """Mean concurrency over the window."""
    panic_concurrency: float
    """Mean concurrency over the panic window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerState:
    """What one decision leaves to the next."""

    desired: int = 0
    """Replicas wanted, before the bounds."""
    initialized: bool = False
    """Whether ``initial_scale`` has been reached once."""
    panic_since: float | None = None
    max_panic_replicas: int = 0
    active_since: float | None = None
    """When the function last became ready after zero."""
    idle_since: float | None = None
    """When zero was first decided, for the retention of the last replica."""
    recent: tuple[tuple[float, int], ...] = ()
    """(time, desired) within ``scale_down_delay_s``."""


def decide(spec: ScalingSpec, state: AutoscalerState, seen: Observation) -> AutoscalerState:
    """The next state; its ``desired`` is the decision."""
    num_ready = max(1, seen.num_ready)
    highest = math.ceil(_MAX_SCALE_UP_RATE * num_ready)
    lowest = math.floor(num_ready / _MAX_SCALE_DOWN_RATE)

    def wanted(concurrency: float) -> int:
        needed = math.ceil(concurrency / spec.target_concurrency)
        within_rates = min(max(needed, lowest), highest)
        return max(within_rates, spec.activation_scale) if needed > 0 and spec.activation_scale > 1 else within_rates

    stable, panic = wanted(seen.stable_concurrency), wanted(seen.panic_concurrency)
    burst = math.ceil(seen.panic_concurrency / spec.target_concurrency) / num_ready >= spec.panic_threshold
    state = _panic(state, spec, seen.now, burst=burst, wanted=max(stable, panic))
    desired = state.max_panic_replicas if state.panic_since is not None else stable
    state, desired = _delay_scale_down(state, spec, seen.now, desired)
    state = _initialize(state, spec, seen)
    if not state.initialized:
        desired = max(desired, spec.initial_scale)
    return _hold_last(state, spec, seen, desired)


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
    """The largest decision within the delay stands."""
    if spec.scale_down_delay_s <= 0:
        return state, desired
    kept = tuple(entry for entry in state.recent if now - entry[0] < spec.scale_down_delay_s)
    recent = (*kept, (now, desired))
    return replace(state, recent=recent), max(number for _, number in recent)


def _initialize(state: AutoscalerState, spec: ScalingSpec, seen: Observation) -> AutoscalerState:
    if state.initialized or seen.num_ready < spec.initial_scale:
        return state
    return replace(state, initialized=True)


def _hold_last(state: AutoscalerState, spec: ScalingSpec, seen: Observation, desired: int) -> AutoscalerState:
    """Zero only when the function has been active for a window, and after the retention of the last replica."""
    active_since = state.active_since
    if seen.num_ready == 0:
        active_since = None
    elif active_since is None:
        active_since = seen.now
    if desired > 0 or active_since is None:
        return replace(state, desired=desired, active_since=active_since, idle_since=None)
    idle_since = state.idle_since if state.idle_since is not None else seen.now
    young = seen.now - active_since < spec.window_s
    retained = seen.now - idle_since < spec.retention_s
    return replace(state, desired=1 if young or retained else 0, active_since=active_since, idle_since=idle_since)
