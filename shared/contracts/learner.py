"""controller → learner → controller: policy version k and its rollouts in, version k+1 out."""

from typing import Literal

from pydantic import Field

from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.wire import Wire

LrScheduler = Literal["constant", "linear", "cosine"]
LossAggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]
AdvantageEstimator = Literal["grpo"]


class OptimConfig(Wire):
    """AdamW and its learning-rate schedule, a function of the step alone."""

    lr: float = Field(gt=0)
    lr_scheduler_type: LrScheduler = "constant"
    lr_warmup_steps: int = Field(ge=0, default=0)
    min_lr_ratio: float = Field(ge=0, le=1, default=0.0)
    total_steps: int = Field(ge=1)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(gt=0, default=1e-8)
    weight_decay: float = Field(ge=0, default=0.01)
    grad_clip: float = Field(gt=0, default=1.0)


class AlgorithmConfig(Wire):
    """From rewards to a loss."""

    adv_estimator: AdvantageEstimator = "grpo"
    norm_adv_by_std_in_grpo: bool = True
    filter_groups: bool = False
    """Leave groups whose rewards are all equal out of the update: they teach nothing, yet count in its mean."""
    clip_ratio_low: float = Field(ge=0, default=0.2)
    clip_ratio_high: float = Field(ge=0, default=0.2)
    clip_ratio_c: float | None = Field(gt=1, default=None)
    loss_agg_mode: LossAggregation = "token-mean"
    entropy_coeff: float = 0.0
    ppo_epochs: int = Field(ge=1, default=1)
    ppo_mini_batch_size: int = Field(ge=0, default=0)
    """Prompts per optimizer update; 0 takes the whole batch."""
    max_token_len: int = Field(ge=1, default=16384)
    """Tokens of one micro-batch. Changes speed and memory, never the gradient."""


class InitInputs(Wire):
    """Publish version 0: read the model, write its weights and a fresh learner state."""

    kind: Literal["init"] = "init"
    model: ModelRef


class UpdateInputs(Wire):
    """Train on one batch of rollouts."""

    kind: Literal["update"] = "update"
    prompts: BlobRef
    scores: tuple[BlobRef, ...] = Field(min_length=1)
    """One per reward shard."""
    num_samples: int = Field(ge=1)
    state: BlobRef | None
    """Optimizer state that belongs to the call's policy; ``None`` before the first update."""
    temperature: float = Field(gt=0)
    optim: OptimConfig
    algorithm: AlgorithmConfig


class LearnerInputs(Wire):
    """Either operation of the learner."""

    operation: InitInputs | UpdateInputs = Field(discriminator="kind")


class LearnerOutputs(Wire):
    """The new policy version and the state that its next update needs."""

    policy: PolicyRef
    state: BlobRef | None
    num_updates: int = Field(ge=0)
