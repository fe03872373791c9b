"""controller → learner, critic, reference: how forward and backward passes are computed. Never what they compute."""

from typing import Literal

from shared.contracts.wire import Wire

Precision = Literal["float32", "bfloat16"]


class TrainingPass(Wire):
    """Weights, gradients and optimizer state are float32 whatever stands here, and so is every log-softmax."""

    enable_gradient_checkpointing: bool = False
    """Compute each layer again for the backward pass instead of keeping its activations. The gradient is the same."""
    dtype: Precision = "float32"
    """Of the matrix products (autocast)."""


DEFAULT_PASS = TrainingPass()
