"""Each point is in the file once, whatever befell those that wrote it."""

import json
from pathlib import Path

from controller.runs.trackers.jsonl import METRICS_FILE, JsonlTracker
from tests.unit.controller.runs.trackers.examples import point, tracked


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(text) for text in (folder / METRICS_FILE).read_text().splitlines()]


def test_points_are_lines(tmp_path: Path) -> None:
    tracker = JsonlTracker(tracked(tmp_path / "run"))
    tracker.log(point(1))
    tracker.log(point(1, kind="eval"))
    tracker.close()
    assert lines(tmp_path / "run") == [
        {"kind": "step", "step": 1, "time": 1001.0, "actor/pg_loss": 1.0},
        {"kind": "eval", "step": 1, "time": 1001.0, "actor/pg_loss": 1.0},
    ]


def test_the_next_owner_goes_on_with_what_the_history_has(tmp_path: Path) -> None:
    first = JsonlTracker(tracked(tmp_path))
    first.log(point(1))
    # Killed while it wrote the second point, and before it could write the third.
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"kind": "step", "st')
    second = JsonlTracker(tracked(tmp_path, point(1), point(2), point(3)))
    second.log(point(4))
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4]


def test_what_the_store_has_lost_is_no_point(tmp_path: Path) -> None:
    first = JsonlTracker(tracked(tmp_path))
    for step in (1, 2):
        first.log(point(step))
    JsonlTracker(tracked(tmp_path, point(1))).log(point(2, again=1.0))
    assert [line.get("again") for line in lines(tmp_path)] == [None, 1.0]
    assert [path.name for path in tmp_path.iterdir()] == [METRICS_FILE]
