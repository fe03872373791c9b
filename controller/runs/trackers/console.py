"""The controller's log: a short line for each point."""

import logging

from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked

log = logging.getLogger(__name__)

SHOWN = (
    "critic/score/mean",
    "actor/pg_loss",
    "actor/grad_norm",
    "actor/lr",
    "response_length/mean",
    "training/rollout_logprobs_diff_mean",
    "timing_s/step",
    "cost/usd",
    "val/accuracy",
)


class ConsoleTracker:
    """Logs the metrics that are looked at first."""

    def __init__(self, tracked: Tracked) -> None:
        self._run = tracked.run

    def log(self, point: Point) -> None:
        """See ``Tracker.log``."""
        shown = "  ".join(f"{name} {point.metrics[name]:.5g}" for name in SHOWN if name in point.metrics)
        log.info("run %s %s %d: %s", self._run, point.kind, point.step, shown, extra={"run": self._run})

    def close(self) -> None:
        """See ``Tracker.close``."""
