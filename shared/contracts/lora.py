"""controller → learner: train a low-rank adapter instead of all weights."""

from typing import Literal

from pydantic import Field

from shared.contracts.wire import Wire


class LoraConfig(Wire):
    """W + (α/r)·B·A with A `[r, in]` and B `[out, r]` trained and W frozen (LoRA, arXiv 2106.09685)."""

    rank: int = Field(ge=1)
    alpha: float = Field(gt=0)
    target_modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Last parts of the adapted layers' names, such as ``q_proj``; by default all linear layers but the output."""
    seed: int = Field(ge=0, default=0)
    """Of A's initial values; B begins as zeros, so version 0 computes what the model does."""
