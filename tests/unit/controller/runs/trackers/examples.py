"""A run as trackers see it."""

from pathlib import Path
from typing import Any

from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked

CONFIG: dict[str, Any] = {"rollout": {"n": 8}, "trainer": {"seed": 42, "logger": ["console"]}}


def point(step: int, kind: str = "step", **metrics: float) -> Point:
    """A point whose loss is its step."""
    return Point(kind=kind, step=step, time=1000.0 + step, metrics={"actor/pg_loss": float(step), **metrics})


def tracked(folder: Path, *points: Point, run: str = "a-run-0001") -> Tracked:
    """The run, which measured these points before."""
    return Tracked(run=run, project="rlhfless", folder=folder, config=CONFIG, points=points)
