"""Per-row arrays as one right-padded tensor.

Shapes: B rows, T longest row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pad_to_batch(arrays: Sequence[NDArray[Any]]) -> Tensor:
    """`arrays` `[T_b]` as a tensor `[B, T]` of their dtype; 0 or False behind a row's end."""
    padded = np.zeros((len(arrays), max(array.size for array in arrays)), dtype=arrays[0].dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: array.size] = array
    return torch.from_numpy(padded)
