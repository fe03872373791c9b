"""controller → learner → controller: policy version k and its rollouts in, version k+1 out."""

from typing import Literal

from pydantic import Field

from shared.contracts.batch import BatchPart
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


class AdvantagesInputs(Wire):
    """Advantages and returns of a batch before its update, for a critic that is updated beside the learner.

    γ, λ and whitening are the learner's alone (DESIGN, the flow).
    """

    kind: Literal["advantages"] = "advantages"
    parts: tuple[BatchPart, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    temperature: float = Field(gt=0)
    algorithm: AlgorithmConfig
    kl_coef: float = Field(ge=0, default=0.0)
    """Current coefficient of the KL penalty in the reward."""


class UpdateInputs(Wire):
    """Train on one batch of rollouts."""

    kind: Literal["update"] = "update"
    parts: tuple[BatchPart, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    state: BlobRef | None
    """Optimizer state that belongs to the call's policy; ``None`` before the first update."""
    temperature: float = Field(gt=0)
    optim: OptimConfig
    algorithm: AlgorithmConfig
    advantages: BlobRef | None = None
    """What an ``AdvantagesInputs`` call on the same parts stored; ``None``: computed here."""
    kl_coef: float = Field(ge=0, default=0.0)
    progress: BlobRef | None = None
    """Where the segment before this one stopped; ``None`` in the first."""


class LearnerInputs(Wire):
    """One of the learner's operations."""

    operation: InitInputs | AdvantagesInputs | UpdateInputs = Field(discriminator="kind")


class LearnerOutputs(Wire):
    """What the operation made."""

    policy: PolicyRef | None = None
    """The new version; ``None`` after ``advantages``."""
    state: BlobRef | None = None
    """What the version's next update needs."""
    num_updates: int = Field(ge=0, default=0)
    advantages: BlobRef | None = None
    """Token values ``advantages``, ``returns`` and, where computed, ``old_logprobs``."""
    kl_coef: float | None = None
    """The controller's coefficient for the next step; ``None`` where no KL penalty is in the reward."""
    progress: BlobRef | None = None
    """Where to go on, with status ``continue``."""
