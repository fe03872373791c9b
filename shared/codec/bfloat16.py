"""bfloat16, which numpy does not have: the upper half of a float32's bits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def from_bfloat16(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers behind uint16 bits, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 as uint16 bits, ties to even, as torch rounds. NaN stays NaN."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(numbers), np.uint32(0x7FC0), rounded).astype(np.uint16)
