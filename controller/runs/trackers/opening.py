"""The trackers that a run's config names, started. A tracker's library is loaded only where it is used."""

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from controller.runs.config.load import resolved
from controller.runs.config.problems import ConfigProblem
from controller.runs.config.run_config import RunConfig
from controller.runs.context import RunContext
from controller.runs.scrubbing import scrubbed
from controller.runs.trackers.points import point_of
from controller.runs.trackers.tracking import Open, Tracked, Tracker, Trackers

PACKAGE = "controller.runs.trackers"
CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "console": "ConsoleTracker",
        "jsonl": "JsonlTracker",
        "tensorboard": "TensorBoardTracker",
        "wandb": "WandbTracker",
        "mlflow": "MlflowTracker",
    }
)
"""Class by name; its module has the same name."""
LIBRARIES = ("tensorboard", "wandb", "mlflow")
"""Trackers whose library, of the same name, is an extra."""


def missing_libraries(config: RunConfig) -> list[ConfigProblem]:
    """Trackers of the config whose library is not installed."""
    return [
        ConfigProblem(
            field="trainer.logger",
            reason=f"the controller has no {name} library",
            suggestion="install the controller with the extra 'trackers', or leave it out",
        )
        for name in config.trainer.logger
        if name in LIBRARIES and find_spec(name) is None
    ]


async def open_trackers(run: RunContext) -> Trackers:
    """Start the trackers, JSON lines always among them. One that cannot start is reported in the run's log."""

    async def report(message: str) -> None:
        await run.emit("log", {"level": "warning", "message": message})

    trackers = Trackers(report)
    history = await run.store.runs.history(run.run)
    tracked = Tracked(
        run=run.run,
        project=run.config.trainer.project_name,
        folder=run.checkpoint_root,
        config=scrubbed(resolved(run.config)),
        points=[point for line in history if (point := point_of(line)) is not None],
    )
    for name in dict.fromkeys(("jsonl", *run.config.trainer.logger)):
        await trackers.open(name, _maker(name), tracked)
    return trackers


def _maker(name: str) -> Open:
    def make(tracked: Tracked) -> Tracker:
        tracker: Open = getattr(importlib.import_module(f"{PACKAGE}.{name}"), CLASSES[name])
        return tracker(tracked)

    return make
