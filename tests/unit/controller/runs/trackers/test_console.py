"""The controller's log has a short line for each point."""

import logging
from pathlib import Path

import pytest

from controller.runs.trackers.console import ConsoleTracker
from tests.unit.controller.runs.trackers.examples import point, tracked


def test_a_point_is_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracker = ConsoleTracker(tracked(tmp_path))
    with caplog.at_level(logging.INFO, logger="controller.runs.trackers.console"):
        tracker.log(point(3, **{"critic/score/mean": 0.123456789, "prompt_length/mean": 4.0}))
    tracker.close()
    assert caplog.messages == ["run a-run-0001 step 3: critic/score/mean 0.12346  actor/pg_loss 3"]
