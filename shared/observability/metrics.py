"""Prometheus metrics of functions and controller, each declared once with its unit."""

from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter("rlhfless_stage_calls", "Stage calls answered, by HTTP status.", ["stage", "status"])
CALLS_IN_FLIGHT = Gauge("rlhfless_stage_calls_in_flight", "Stage calls being worked on.", ["stage"])
CALL_SECONDS = Histogram(
    "rlhfless_stage_call_seconds",
    "Time to answer a stage call.",
    ["stage"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 600),
)
RUNS = Gauge("rlhfless_runs", "Runs by state.", ["state"])
STEPS = Counter("rlhfless_steps", "Steps finished.")
STEP_SECONDS = Histogram(
    "rlhfless_step_seconds", "Duration of a step.", buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
)
REPLICA_SECONDS = Counter("rlhfless_replica_seconds", "Replica time by what it was spent on.", ["stage", "kind"])
