"""What a cluster's operator sets for all revisions: Knative's ConfigMap ``config-autoscaler``.

Source: knative/serving ``pkg/autoscaler/config/config.go``. A revision's annotations override some of it.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDefaults:
    """Knative's own defaults. Durations in seconds, shares as fractions."""

    initial_scale: int = 1
    """Replicas that a new revision starts before it is ready."""
    allow_zero_initial_scale: bool = False
    min_scale: int = 0
    max_scale: int = 0
    """0: no bound."""
    max_scale_limit: int = 0
    """The largest ``max-scale`` that a revision may ask for. 0: any, also none."""
    stable_window_s: float = 60.0
    panic_window_fraction: float = 0.1
    panic_threshold: float = 2.0
    target_utilization: float = 0.7
    concurrency_without_limit: float = 100.0
    """What a replica without ``containerConcurrency`` is taken to bear."""
    target_burst_capacity: float = 211.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_to_zero_grace_period_s: float = 30.0
    """How long the activator must have been in the path before the last replica goes."""
    pod_retention_s: float = 0.0
    """How long the last replica is kept after the decision for zero."""


KNATIVE = ClusterDefaults()

# A laptop starts nothing before it is needed. A cluster may be configured so as well.
LOCAL = replace(KNATIVE, initial_scale=0, allow_zero_initial_scale=True)
