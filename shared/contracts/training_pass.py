"""controller → learner, critic, reference: how forward and backward passes are computed. Never what they compute."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.wire import Wire

Precision = Literal["float32", "bfloat16"]
"""Of weights that are published, or of the products that a pass is made of. float16 is none: it needs a loss scale."""

PublishedDtype = Annotated[Precision, Field(exclude_if=lambda dtype: dtype == "float32")]
"""Left out of a message where it is float32: older builds, which know no other, read it as it is meant."""


class TrainingPass(Wire):
    """Weights, gradients and optimizer state are float32 whatever stands here, and so is every log-softmax."""

    enable_gradient_checkpointing: bool = False
    """Compute each layer again for the backward pass instead of keeping its activations. The gradient is the same."""
    dtype: Precision = "float32"
    """Of the matrix products (autocast)."""


DEFAULT_PASS = TrainingPass()
