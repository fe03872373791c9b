"""Which checkpoints stay, and what a crash leaves of those that do not."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import pytest

from controller.runs.checkpoints import MANIFEST_FILE, describe
from controller.runs.manifest import Checkpointed
from controller.runs.retention import metric_at, remove, retained
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from tests.fakes.crash import Crash, failing

REF = BlobRef(id="r/000001/w", num_bytes=0, sha256=hashlib.sha256(b"").hexdigest())
POLICY = PolicyRef(version=1, model=ModelRef(path="m"), weights=REF)
HISTORY: list[dict[str, Any]] = [
    {"kind": "init", "step": 0},
    {"kind": "eval", "step": 0, "accuracy": 0.1, "metrics": {"val-core/reward/mean@1": 0.1}},
    {"kind": "step", "step": 0, "metrics": {"critic/score/mean": 0.2, "actor/lr": float("nan")}},
    {"kind": "eval", "step": 1, "accuracy": 0.3, "metrics": {"val-core/reward/mean@1": 0.31}},
    {"kind": "checkpoint", "step": 1, "folder": "f"},
    {"kind": "step", "step": 1, "metrics": {"critic/score/mean": 0.4}},
]


def checkpoint(step: int, metric: float | None = None, folder: str = "") -> Checkpointed:
    return Checkpointed(step=step, folder=folder, policy=POLICY, state=None, metric=metric)


METRICS = (0.1, 0.9, None, 0.5, 0.9, 0.2)
ALL = tuple(checkpoint(step, metric) for step, metric in enumerate(METRICS, start=1))


@pytest.mark.parametrize(
    ("newest", "best", "mode", "steps"),
    [
        (None, None, "max", [1, 2, 3, 4, 5, 6]),
        (2, None, "max", [5, 6]),
        (9, None, "max", [1, 2, 3, 4, 5, 6]),
        (None, 1, "max", [5, 6]),
        (None, 2, "max", [2, 5, 6]),
        (None, 3, "max", [2, 4, 5, 6]),
        (3, 1, "min", [1, 4, 5, 6]),
        (1, 9, "max", [1, 2, 4, 5, 6]),
    ],
)
def test_the_newest_and_the_best_stay(newest: int | None, best: int | None, mode: Any, steps: list[int]) -> None:
    kept = retained(ALL, newest=newest, best=best, mode=mode)
    assert [checkpoint.step for checkpoint in kept] == steps


@pytest.mark.parametrize("newest", [None, 1, 2])
@pytest.mark.parametrize("best", [1, 2])
def test_deciding_after_each_checkpoint_keeps_the_best_of_all(newest: int | None, best: int) -> None:
    kept: tuple[Checkpointed, ...] = ()
    for written in ALL:
        kept = retained((*kept, written), newest=newest, best=best, mode="max")
    assert kept == retained(ALL, newest=newest, best=best, mode="max")


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [
        (1, None, 0.3),
        (2, None, None),
        (1, "val-core/reward/mean@1", 0.31),
        (1, "critic/score/mean", 0.2),
        (2, "critic/score/mean", 0.4),
        (0, "critic/score/mean", None),
        (1, "actor/lr", None),
        (1, "unheard/of", None),
    ],
)
def test_a_version_is_measured_by_its_evaluation_or_by_the_step_that_made_it(
    step: int, name: str | None, value: float | None
) -> None:
    assert metric_at(HISTORY, step, name) == value


def on_disk(root: Path, step: int) -> Checkpointed:
    folder = root / f"global_step_{step}"
    (folder / "huggingface").mkdir(parents=True)
    (folder / "huggingface" / "model.safetensors").write_text("w")
    (folder / MANIFEST_FILE).write_text("{}")
    return checkpoint(step, folder=str(folder))


def test_what_does_not_stay_is_gone(tmp_path: Path) -> None:
    written = [on_disk(tmp_path, step) for step in (1, 2, 3)]
    remove(written[:2])
    remove(written[:1])
    assert [path.name for path in tmp_path.iterdir()] == ["global_step_3"]


def test_what_is_half_removed_is_no_checkpoint_any_more(tmp_path: Path) -> None:
    written = (on_disk(tmp_path, 1), on_disk(tmp_path, 2))
    before = describe(written)[0]
    for num_changes in range(100):
        with failing(num_changes, Crash(), lasting=True) as fault, contextlib.suppress(Crash):
            remove(written[:1])
        shown = describe(written)
        assert shown[-1].step == 2
        assert len(shown) == 1 or shown[0] == before, "a checkpoint is whole, or it is not shown"
        if not fault.has_struck:
            break
    assert [info.step for info in describe(written)] == [2]
