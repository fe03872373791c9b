"""TensorBoard reads what was written, also by several owners."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from controller.runs.trackers.tensorboard import TensorBoardTracker
from tests.unit.controller.runs.trackers.examples import point, tracked


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    found: set[tuple[int, float]] = set()
    for file in sorted((folder / "tensorboard").iterdir()):
        events = EventAccumulator(str(file))
        events.Reload()
        if name in events.Tags()["scalars"]:
            found |= {(event.step, event.value) for event in events.Scalars(name)}
    return sorted(found)


def test_points_are_scalars_and_the_config_is_a_text(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tracked(tmp_path))
    tracker.log(point(1))
    tracker.log(point(2, **{"val-core/reward/mean@4": 0.5}))
    tracker.close()
    assert scalars(tmp_path, "actor/pg_loss") == [(1, 1.0), (2, 2.0)]
    assert scalars(tmp_path, "val-core/reward/mean@4") == [(2, 0.5)]
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["tensors"] == ["config"]
    assert b'"n": 8' in events.Tensors("config")[0].tensor_proto.string_val[0]


def test_points_are_on_the_disk_before_the_tracker_ends(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tracked(tmp_path))
    tracker.log(point(1))
    assert scalars(tmp_path, "actor/pg_loss") == [(1, 1.0)]
    tracker.close()


def test_the_next_owner_adds_to_the_same_curve(tmp_path: Path) -> None:
    first = TensorBoardTracker(tracked(tmp_path))
    first.log(point(1))
    first.close()
    second = TensorBoardTracker(tracked(tmp_path, point(1), point(2)))
    second.log(point(3))
    second.close()
    assert scalars(tmp_path, "actor/pg_loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
