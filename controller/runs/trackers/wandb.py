"""Weights & Biases. Its own environment decides where to: ``WANDB_API_KEY``, ``WANDB_MODE=offline`` and so on."""

import wandb

from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked


class WandbTracker:
    """A W&B run under our run's id: the next owner goes on with the same one."""

    def __init__(self, tracked: Tracked) -> None:
        self._run = wandb.init(
            project=tracked.project,
            id=tracked.run,
            name=tracked.run,
            resume="allow",
            dir=str(tracked.folder),
            config=dict(tracked.config),
            # The run, and nothing of the machine: neither its code, its output, its name nor its environment.
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                host="controller",
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                silent=True,
            ),
        )
        if tracked.points:
            self.log(tracked.points[-1])

    def log(self, point: Point) -> None:
        """See ``Tracker.log``."""
        self._run.log(dict(point.metrics), step=point.step)

    def close(self) -> None:
        """See ``Tracker.close``."""
        self._run.finish()
