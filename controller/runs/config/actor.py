"""``actor``: how the policy is updated."""

from typing import Annotated

from pydantic import Field

from controller.runs.config.algorithm import Estimator
from controller.runs.config.section import Section
from shared.contracts.learner import LossAggregation, LossMode, LrScheduler

Beta = Annotated[float, Field(ge=0, lt=1)]


class ActorOptimConfig(Section):
    """AdamW and its learning rate as a function of the step."""

    lr: float = Field(gt=0, default=1e-6)
    """Peak learning rate. Default 1e-6, what every trainer for full fine-tuning of language models starts from."""
    lr_scheduler_type: LrScheduler = "constant"
    """Learning rate after the warm-up: constant, or linear or cosine decay to ``min_lr_ratio`` at the last step.
    Default constant, as in verl."""
    lr_warmup_steps: int = Field(ge=0, le=10**9, default=0)
    """Steps over which the learning rate rises linearly from 0. Default 0: none."""
    min_lr_ratio: float = Field(ge=0, le=1, default=0.0)
    """Learning rate of the last step over the peak, for linear and cosine. Default 0, as in verl and TRL."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Decay of AdamW's first and second moment. Default [0.9, 0.999], PyTorch's."""
    eps: float = Field(gt=0, default=1e-8)
    """AdamW's addend to the denominator. Default 1e-8, PyTorch's."""
    weight_decay: float = Field(ge=0, default=0.01)
    """AdamW's decoupled weight decay. Default 0.01, verl's and PyTorch's."""


DEFAULT_CLIP = 0.2
DEFAULT_DUAL_CLIP = 3.0


class PolicyLossConfig(Section):
    """Which policy loss."""

    loss_mode: LossMode = "vanilla"
    """vanilla: PPO's clipped ratio of each token. gspo: one ratio per completion, their geometric mean
    (arXiv 2507.18071). cispo: the clipped ratio as a weight, every token learns (arXiv 2506.13585). Default vanilla, as
    in PPO, GRPO and DAPO."""


class ActorConfig(Section):
    """The loss and the update."""

    optim: ActorOptimConfig = ActorOptimConfig()
    policy_loss: PolicyLossConfig = PolicyLossConfig()
    clip_ratio: float = Field(ge=0, le=1, default=DEFAULT_CLIP)
    """Clip range of the probability ratio on both sides: [1 − ε, 1 + ε]. Given, it replaces both ranges of a preset.
    Default 0.2, PPO's."""
    clip_ratio_low: float | None = Field(ge=0, le=1, default=None)
    """Lower clip range alone; 1 is no lower bound. Default null: ``clip_ratio``."""
    clip_ratio_high: float | None = Field(ge=0, default=None)
    """Upper clip range alone; DAPO's clip-higher is 0.28. Default null: ``clip_ratio``."""
    clip_ratio_c: float | None = Field(gt=1, default=DEFAULT_DUAL_CLIP)
    """Dual clip: upper bound of the ratio where the advantage is negative; null turns it off. Default 3, as in verl.
    cispo has none."""
    use_kl_loss: bool = False
    """Whether the loss has a KL term against the reference. Default false."""
    kl_loss_coef: float = Field(ge=0, default=0.001)
    """Weight of the KL term. Default 0.001, verl's."""
    kl_loss_type: Estimator = "low_var_kl"
    """How the KL term is estimated: low_var_kl (k3; its gradient is that of KL(reference‖policy)), mse (k2; that of
    KL(policy‖reference)) or kl (k1; no gradient in the mean, only noise). Default low_var_kl, as in GRPO and verl."""
    loss_agg_mode: LossAggregation = "token-mean"
    """How token losses become one number. Default token-mean: every token weighs the same, in a long completion or a
    short one. seq-mean-token-mean: every completion weighs the same (GRPO). seq-mean-token-sum: a completion weighs as
    many times as it has tokens. seq-mean-token-sum-norm: the same over ``data.max_response_length`` (Dr.GRPO)."""
    entropy_coeff: float = 0.0
    """Weight of the entropy bonus. Default 0: none."""
    ppo_epochs: int = Field(ge=1, le=1000, default=1)
    """Passes over a step's rollouts. Default 1: nearly on-policy."""
    ppo_mini_batch_size: int | None = Field(ge=1, le=2**20, default=None)
    """Prompts per optimizer update. Default null: ``data.train_batch_size``, one update per pass."""
    grad_clip: float = Field(gt=0, default=1.0)
    """Largest norm of the gradient. Default 1, as everywhere."""
    ppo_max_token_len_per_gpu: int = Field(ge=1, le=2**26, default=16384)
    """Tokens of one micro-batch: memory against speed, never the gradient. Default 16384, as in verl."""

    @property
    def clip_range(self) -> tuple[float, float]:
        """The lower and the upper clip range that hold."""
        low, high = self.clip_ratio_low, self.clip_ratio_high
        return self.clip_ratio if low is None else low, self.clip_ratio if high is None else high
