"""How many replicas a function has: Knative's rule at a utilization of 100 %, without its delays. Pure."""

from controller.platforms.simulated.function_spec import FunctionSpec


def wanted_replicas(spec: FunctionSpec, *, num_requests: int, num_held: int) -> int:
    """Replicas for so many requests, waiting ones included, and a raised minimum; within the function's bounds."""
    needed = -(-num_requests // spec.container_concurrency)
    wanted = max(spec.min_scale, num_held, needed)
    return min(wanted, spec.max_scale) if spec.max_scale else wanted


def leaves_at(spec: FunctionSpec, *, idle_since: float) -> float:
    """When a replica without requests leaves, if it is not wanted then."""
    return idle_since + spec.window_s
