"""How one revision scales: its annotations, and the cluster's defaults where it has none."""

import math
from dataclasses import dataclass

from controller.platforms.local.cluster_defaults import LOCAL, ClusterDefaults

_MIN_TARGET = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSpec:
    """The autoscaling of a revision. Scales of 0: no bound. ``scaling_annotations.parse_scaling`` makes it."""

    container_concurrency: int = 0
    target: float | None = None
    utilization: float = LOCAL.target_utilization
    target_burst_capacity: float = LOCAL.target_burst_capacity
    """Requests that must find room at once, else the activator stays in the path. -1: always there, 0: at zero only."""
    window_s: float = LOCAL.stable_window_s
    panic_window_fraction: float = LOCAL.panic_window_fraction
    panic_threshold: float = LOCAL.panic_threshold
    min_scale: int = LOCAL.min_scale
    max_scale: int = LOCAL.max_scale
    initial_scale: int = LOCAL.initial_scale
    activation_scale: int = 1
    scale_down_delay_s: float = 0.0
    retention_s: float = LOCAL.pod_retention_s
    """How long the last replica is kept after the decision for zero."""
    cluster: ClusterDefaults = LOCAL
    """What only the operator sets: rates, the grace period."""

    @property
    def total_concurrency(self) -> float:
        """Requests that one replica is taken to bear: its limit, or the target where that is less."""
        limit = float(self.container_concurrency)
        if self.target is None:
            return limit or self.cluster.concurrency_without_limit
        return min(self.target, limit) if limit else self.target

    @property
    def target_concurrency(self) -> float:
        """Requests per replica that the autoscaler aims at: the total · utilization."""
        return max(_MIN_TARGET, self.total_concurrency * self.utilization)

    @property
    def panic_window_s(self) -> float:
        """The short window that bursts are seen in: whole seconds, at least one."""
        return max(1.0, float(math.floor(self.window_s * self.panic_window_fraction + 0.5)))

    @property
    def is_scraped(self) -> bool:
        """Whether replicas report their own load. With the activator always in the path it alone reports."""
        return self.target_burst_capacity != -1
