"""W&B offline: what would be sent later lies in the run's folder."""

from pathlib import Path

import pytest

from tests.unit.controller.runs.trackers.examples import point, tracked

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_a_run_is_kept_under_its_id_without_anything_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", "hunter2" * 6)
    from controller.runs.trackers.wandb import WandbTracker

    for before in ((), (point(1), point(2))):
        tracker = WandbTracker(tracked(tmp_path, *before))
        tracker.log(point(len(before) + 1))
        tracker.close()
    written = [file for file in tmp_path.rglob("*.wandb") if not file.is_symlink()]
    assert {file.name for file in written} == {"run-a-run-0001.wandb"}
    content = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"actor/pg_loss" in b"".join(file.read_bytes() for file in written)
    assert b"hunter2" not in content
