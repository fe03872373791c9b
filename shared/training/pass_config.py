"""How forward and backward passes are computed: what they cost in memory and time, and their precision."""

from dataclasses import dataclass
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassConfig:
    """Weights, gradients and optimizer state are float32 whatever stands here, and so is every log-softmax."""

    gradient_checkpointing: bool = False
    """Compute each layer again for the backward pass instead of keeping its activations. The gradient is the same."""
    precision: Precision = "float32"
    """Of the matrix products (autocast)."""

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """What is cast to; None where nothing is."""
        return torch.bfloat16 if self.precision == "bfloat16" else None


DEFAULT_PASS = PassConfig()
