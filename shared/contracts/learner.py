"""controller → learner → controller: policy version k and its rollouts in, version k+1 out."""

from typing import Literal

from pydantic import Field

from shared.contracts.batch import BatchPart
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.training_pass import PublishedDtype, TrainingPass
from shared.contracts.wire import Wire

LrScheduler = Literal["constant", "linear", "cosine"]
LossAggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
AdvantageEstimator = Literal["gae", "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"]
LossMode = Literal["vanilla", "gspo", "cispo"]
"""The policy loss by verl's names; vanilla is PPO's clipped one."""
KlEstimator = Literal["kl", "mse", "low_var_kl"]
"""k1, k2 and k3 by verl's names."""
KlController = Literal["fixed", "adaptive"]
CorrectionLevel = Literal["token", "sequence"]


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


class KlPenalty(Wire):
    """A KL penalty in the reward: every token's estimate, times a coefficient, is taken off its reward."""

    estimator: KlEstimator = "kl"
    kl_coef: float = Field(ge=0, default=0.001)
    """The first step's coefficient; later ones are what the controller answered."""
    controller: KlController = "fixed"
    horizon: int = Field(ge=1, default=10_000)
    """Completions over which the adaptive controller changes the coefficient by the relative error of the KL."""
    target_kl: float = Field(gt=0, default=0.1)
    """KL per token that the adaptive controller steers to."""


class KlLoss(Wire):
    """A KL term in the loss."""

    estimator: KlEstimator = "low_var_kl"
    coef: float = Field(gt=0, default=0.001)


class OverlongBuffer(Wire):
    """DAPO's soft overlong punishment: it rises over the last ``len`` of the allowed tokens."""

    len: int = Field(ge=1)
    penalty_factor: float = Field(gt=0, default=1.0)
    """Taken off the reward of a completion of all allowed tokens."""


class RolloutCorrection(Wire):
    """Truncated importance sampling between the engine that sampled and the learner."""

    level: CorrectionLevel = "token"
    threshold: float = Field(gt=0, default=2.0)
    """Cap of the weights."""


class AlgorithmConfig(Wire):
    """From rewards to a loss."""

    adv_estimator: AdvantageEstimator = "grpo"
    norm_adv_by_std_in_grpo: bool = True
    gamma: float = Field(ge=0, le=1, default=1.0)
    """Discount per sampled token (``gae``, ``reinforce_plus_plus``)."""
    lam: float = Field(ge=0, le=1, default=1.0)
    """λ of ``gae``."""
    kl_in_reward: KlPenalty | None = None
    overlong_buffer: OverlongBuffer | None = None
    max_completion_tokens: int | None = Field(ge=1, default=None)
    """The longest completion that rollout makes: what overlong is measured by, and the constant of
    ``seq-mean-token-sum-norm``. Needed by these only."""
    mask_truncated_completions: bool = False
    """Leave completions with finish reason "length" out of the loss, though not out of their group's statistics."""
    filter_groups: bool = False
    """Leave groups whose rewards are all equal out of the update: they teach nothing, yet count in its mean."""
    loss_mode: LossMode = "vanilla"
    clip_ratio_low: float = Field(ge=0, le=1, default=0.2)
    clip_ratio_high: float = Field(ge=0, default=0.2)
    clip_ratio_c: float | None = Field(gt=1, default=None)
    kl_loss: KlLoss | None = None
    rollout_correction: RolloutCorrection | None = None
    loss_agg_mode: LossAggregation = "token-mean"
    entropy_coeff: float = 0.0
    ppo_epochs: int = Field(ge=1, default=1)
    ppo_mini_batch_size: int = Field(ge=0, default=0)
    """Prompts per optimizer update; 0 takes the whole batch."""
    max_token_len: int = Field(ge=1, default=16384)
    """Tokens of one micro-batch. Changes speed and memory, never the gradient."""
    compute: TrainingPass = TrainingPass()

    @property
    def needs_reference(self) -> bool:
        """Whether the parts must carry reference logprobs."""
        return self.kl_in_reward is not None or self.kl_loss is not None

    @property
    def needs_values(self) -> bool:
        """Whether the parts must carry the critic's values where advantages are computed."""
        return self.adv_estimator == "gae"


class InitInputs(Wire):
    """Publish version 0: read the model, write its weights and, with LoRA, a fresh adapter."""

    kind: Literal["init"] = "init"
    model: ModelRef
    lora: LoraConfig | None = None
    """``None``: all weights are trained."""
    dtype: PublishedDtype = "float32"
    """Of the published weights, in this version and in all that follow. Training begins from them as they are here,
    rounded; from then on it keeps float32 weights of its own in its state."""


class AdvantagesInputs(Wire):
    """Advantages and returns of a batch before its update, for a critic that is updated beside the learner.

    γ, λ and whitening are the learner's alone (DESIGN, the flow).
    """

    kind: Literal["advantages"] = "advantages"
    parts: tuple[BatchPart, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    temperature: float = Field(gt=0)
    algorithm: AlgorithmConfig
    state: BlobRef | None = Field(default=None, exclude_if=lambda state: state is None)
    """As in ``UpdateInputs``, where published weights are rounded: the learner's own logprobs are those of the weights
    that it will train."""
    kl_coef: float | None = Field(ge=0, default=None)
    """Current coefficient of the KL penalty in the reward; ``None`` takes the algorithm's first one."""


class UpdateInputs(Wire):
    """Train on one batch of rollouts."""

    kind: Literal["update"] = "update"
    parts: tuple[BatchPart, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    state: BlobRef | None
    """Optimizer state that belongs to the call's policy, and its float32 weights where the published ones are rounded;
    ``None`` before the first update."""
    temperature: float = Field(gt=0)
    optim: OptimConfig
    algorithm: AlgorithmConfig
    advantages: BlobRef | None = None
    """What an ``AdvantagesInputs`` call on the same parts stored; ``None``: computed here."""
    kl_coef: float | None = Field(ge=0, default=None)
    """As in ``AdvantagesInputs``; of no effect with ``advantages``, in which it already is."""
    flat_rows: tuple[str, ...] | None = None
    """Rows whose completions are all equally correct, as the reward function says: what ``filter_groups`` leaves out.
    ``None``: told by their rewards, in which a part may be shaping."""
    progress: BlobRef | None = None
    """Where the segment before this one stopped; ``None`` in the first."""
    packing_plan: BlobRef | None = None
    """What an earlier learner answered for the same batch, to be followed again; ``None`` makes one."""


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
    """The KL controller's coefficient for the next step; ``None`` where no KL penalty was computed."""
    progress: BlobRef | None = None
    """Where to go on, with status ``continue``."""
    packing_plan: BlobRef | None = None
    """Which rows went through the model together, as JSON: a replay that follows it adds up in the same order."""
