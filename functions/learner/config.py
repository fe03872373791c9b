"""The run parameters of an update, as one value. Names follow verl where it has one."""

from dataclasses import dataclass
from typing import Literal

from functions.learner.errors import InvalidLearnerConfig
from shared.contracts.learner import AdvantageEstimator, AlgorithmConfig, LossAggregation, OptimConfig

LrSchedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """From rewards to an optimizer step. Raises InvalidLearnerConfig."""

    lr: float
    lr_schedule: LrSchedule = "constant"
    warmup_steps: int = 0
    total_steps: int = 0
    """Steps of the run; a decaying schedule needs it."""
    min_lr_ratio: float = 0.0
    """Learning rate at the end of the decay, as a share of `lr`."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    max_grad_norm: float | None = 1.0
    """None does not clip; the norm must be finite all the same."""

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
        _require(self.lr > 0, "lr must be positive")
        _require(self.warmup_steps >= 0, "warmup_steps must not be negative")
        decays = self.lr_schedule != "constant"
        _require(not decays or self.total_steps > self.warmup_steps, "total_steps must exceed warmup_steps")
        _require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio must be within [0, 1]")
        _require(all(0 <= beta < 1 for beta in self.betas), "betas must be within [0, 1)")
        _require(self.eps > 0, "eps must be positive")
        _require(self.weight_decay >= 0, "weight_decay must not be negative")
        _require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm must be positive or None")
        _require(0 <= self.clip_ratio_low < 1, "clip_ratio_low must be within [0, 1)")
        _require(self.clip_ratio_high >= 0, "clip_ratio_high must not be negative")
        _require(self.clip_ratio_c is None or self.clip_ratio_c > 1, "clip_ratio_c must exceed 1 or be None")
        cap = self.rollout_is_threshold
        _require(cap is None or cap > 0, "rollout_is_threshold must be positive or None")
        _require(self.ppo_epochs >= 1, "ppo_epochs must be at least 1")
        _require(self.ppo_mini_batch_size >= 0, "ppo_mini_batch_size must not be negative")
        _require(self.max_token_len >= 1, "max_token_len must be at least 1")
        _require(self.temperature > 0, "temperature must be positive: logprobs are undefined at 0")

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


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidLearnerConfig(message)
