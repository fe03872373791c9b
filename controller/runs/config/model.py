"""``model``: which policy is trained, and how passes through it are computed."""

from typing import Annotated, Literal

from pydantic import Field

from controller.runs.config.section import Section
from shared.contracts.training_pass import Precision


class ModelConfig(Section):
    """The architecture, tokenizer and starting weights."""

    path: str = Field(min_length=1, max_length=1024)
    """Folder with config.json, tokenizer files and safetensors weights, under the configured roots; or a hub id
    where the controller's settings allow a hub. No default: there is no model that fits every run."""
    lora_rank: int = Field(ge=0, le=2**16, default=0)
    """Rank of the LoRA adapter that is trained in place of the weights. Default 0: all weights are trained."""
    lora_alpha: float = Field(gt=0, default=16.0)
    """The adapter is scaled by ``lora_alpha`` / ``lora_rank``. Default 16, as in verl."""
    target_modules: Literal["all-linear"] | tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = (
        "all-linear"
    )
    """Layers that are adapted, by the last part of their names: [q_proj, v_proj]. Default all-linear: every linear
    layer but the output, as in verl."""
    enable_gradient_checkpointing: bool = False
    """Compute each layer again for the backward pass of policy and critic instead of keeping its activations: less
    memory for a third more time, never another gradient. Default false."""
    dtype: Precision = "float32"
    """Precision of the matrix products of policy, critic and reference: float32 or bfloat16. Weights, optimizer and
    log-softmax stay float32. Default float32, with which a run can be repeated bit for bit; use bfloat16 on GPUs."""
