"""Which checkpoints stay: the newest, and the best by a metric."""

import contextlib
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from controller.runs.checkpoints import MANIFEST_FILE
from controller.runs.manifest import Checkpointed


def metric_at(history: Sequence[Mapping[str, Any]], step: int, name: str | None) -> float | None:
    """A metric of the policy after ``step`` steps; ``None`` where it was not measured. Without a name, its accuracy.

    The held-out rows were sampled with that policy; metrics of training are those of the step that made it.
    """
    for line in reversed(history):
        if line["kind"] == "eval" and line["step"] == step:
            value = line["accuracy"] if name is None else line.get("metrics", {}).get(name)
        elif line["kind"] == "step" and line["step"] == step - 1 and name is not None:
            value = line["metrics"].get(name)
        else:
            continue
        if value is not None and math.isfinite(value):
            return float(value)
    return None


def retained(
    checkpoints: tuple[Checkpointed, ...], *, newest: int | None, best: int | None, mode: Literal["max", "min"]
) -> tuple[Checkpointed, ...]:
    """The checkpoints that stay, oldest first: the ``newest`` ones, and the ``best`` ones that were measured.

    Of equally good ones the newer stays. Without ``best``, ``newest=None`` keeps all; with it, one.
    """
    if newest is None and best is None:
        return checkpoints
    staying = {checkpoint.step for checkpoint in checkpoints[-(newest or 1) :]}
    if best is not None:
        sign = 1.0 if mode == "max" else -1.0
        ranked = [
            (sign * checkpoint.metric, checkpoint.step) for checkpoint in checkpoints if checkpoint.metric is not None
        ]
        staying |= {step for _, step in sorted(ranked, reverse=True)[:best]}
    return tuple(checkpoint for checkpoint in checkpoints if checkpoint.step in staying)


def remove(checkpoints: Sequence[Checkpointed]) -> None:
    """Delete the folders from disk."""
    for checkpoint in checkpoints:
        folder = Path(checkpoint.folder)
        # Its manifest first: without one, what a crash leaves of the folder is no checkpoint any more.
        with contextlib.suppress(OSError):
            (folder / MANIFEST_FILE).unlink()
        shutil.rmtree(folder, ignore_errors=True)
