"""The run parameters of an update, as one value. Names follow verl where it has one."""

from dataclasses import dataclass

from shared.contracts.learner import AdvantageEstimator, AlgorithmConfig, LossAggregation, OptimConfig
from shared.training.optimizer_config import OptimizerConfig, require


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(OptimizerConfig):
    """From rewards to an optimizer step. Raises InvalidTrainingConfig."""

    adv_estimator: AdvantageEstimator = "grpo"
    norm_adv_by_std: bool = True
    """False leaves the advantage at r − mean (Dr. GRPO)."""
    filter_groups: bool = False
    """Leave groups whose rewards are all equal out of the update: out of its gradient, where they count for
    nothing, and out of its denominators and optimizer work, where they would count (DAPO)."""

    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    clip_ratio_c: float | None = None
    """Dual clip: bound of the loss at c·|advantage| for negative advantages, c > 1. None is off."""
    rollout_is_threshold: float | None = None
    """Cap of the token-level importance weights between engine and learner (TIS). None is off."""
    entropy_coeff: float = 0.0
    loss_agg_mode: LossAggregation = "token-mean"

    ppo_epochs: int = 1
    ppo_mini_batch_size: int = 0
    """Groups per optimizer update; 0 takes the whole batch."""
    max_token_len: int = 16384
    """Tokens of one micro-batch, padding included. Changes speed and memory, never the gradient."""
    temperature: float = 1.0
    """The one that the completions were sampled at; every logprob is taken at it."""

    def __post_init__(self) -> None:
        OptimizerConfig.__post_init__(self)
        require(0 <= self.clip_ratio_low < 1, "clip_ratio_low must be within [0, 1)")
        require(self.clip_ratio_high >= 0, "clip_ratio_high must not be negative")
        require(self.clip_ratio_c is None or self.clip_ratio_c > 1, "clip_ratio_c must exceed 1 or be None")
        cap = self.rollout_is_threshold
        require(cap is None or cap > 0, "rollout_is_threshold must be positive or None")
        require(self.ppo_epochs >= 1, "ppo_epochs must be at least 1")
        require(self.ppo_mini_batch_size >= 0, "ppo_mini_batch_size must not be negative")
        require(self.max_token_len >= 1, "max_token_len must be at least 1")
        require(self.temperature > 0, "temperature must be positive: logprobs are undefined at 0")

    @classmethod
    def from_contract(cls, optim: OptimConfig, algorithm: AlgorithmConfig, temperature: float) -> "LearnerConfig":
        """The config that a call carries."""
        return cls(
            lr=optim.lr,
            lr_schedule=optim.lr_scheduler_type,
            warmup_steps=optim.lr_warmup_steps,
            total_steps=optim.total_steps,
            min_lr_ratio=optim.min_lr_ratio,
            betas=optim.betas,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            max_grad_norm=optim.grad_clip,
            adv_estimator=algorithm.adv_estimator,
            norm_adv_by_std=algorithm.norm_adv_by_std_in_grpo,
            filter_groups=algorithm.filter_groups,
            clip_ratio_low=algorithm.clip_ratio_low,
            clip_ratio_high=algorithm.clip_ratio_high,
            clip_ratio_c=algorithm.clip_ratio_c,
            entropy_coeff=algorithm.entropy_coeff,
            loss_agg_mode=algorithm.loss_agg_mode,
            ppo_epochs=algorithm.ppo_epochs,
            ppo_mini_batch_size=algorithm.ppo_mini_batch_size,
            max_token_len=algorithm.max_token_len,
            temperature=temperature,
        )
