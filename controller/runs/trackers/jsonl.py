"""``metrics.jsonl`` in the run's folder: every point, one line each. Always written."""

import json
from pathlib import Path

from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked

METRICS_FILE = "metrics.jsonl"


class JsonlTracker:
    """Appends points to the file.

    It begins as what the run's history says, so that it has each point once, whatever befell its writers before.
    """

    def __init__(self, tracked: Tracked) -> None:
        tracked.folder.mkdir(parents=True, exist_ok=True)
        path = tracked.folder / METRICS_FILE
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text("".join(map(_line, tracked.points)))
        partial.rename(path)
        self._path: Path = path

    def log(self, point: Point) -> None:
        """See ``Tracker.log``."""
        with self._path.open("a") as file:
            file.write(_line(point))

    def close(self) -> None:
        """See ``Tracker.close``."""


def _line(point: Point) -> str:
    return json.dumps({"kind": point.kind, "step": point.step, "time": point.time, **point.metrics}) + "\n"
