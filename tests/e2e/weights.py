"""The weights that a run came to, as its checkpoints have them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.e2e.api import Api

Weights = Mapping[str, NDArray[np.float32]]
TOLERANCE = 1e-6


def checkpoint_folder(api: Api, run: str, step: int) -> Path:
    """The folder of a checkpoint."""
    listed = api.get(f"/v1/runs/{run}/checkpoints")["checkpoints"]
    [folder] = [Path(checkpoint["folder"]) for checkpoint in listed if checkpoint["step"] == step]
    return folder


def read_weights(checkpoint: Path) -> Weights:
    """The weights of a checkpoint, or of a model's folder."""
    exported = checkpoint / "huggingface"
    return load_file((exported if exported.is_dir() else checkpoint) / "model.safetensors")


def largest_difference(first: Weights, second: Weights) -> float:
    """Largest difference between two sets of weights of the same model."""
    assert first.keys() == second.keys()
    return max(float(np.abs(first[name] - second[name]).max()) for name in first)
