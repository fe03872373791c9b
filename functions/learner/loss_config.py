"""From advantages to a loss, as one value. Names follow verl where it has one."""

from dataclasses import dataclass

from shared.contracts.learner import AlgorithmConfig, CorrectionLevel, KlEstimator, LossAggregation, LossMode
from shared.training.optimizer_config import require


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """The terms of the loss and how token losses become one number. Raises InvalidTrainingConfig."""

    loss_mode: LossMode = "vanilla"
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    clip_ratio_c: float | None = None
    """Dual clip: bound of the loss at c·|advantage| for negative advantages, c > 1. None is off."""
    rollout_is: CorrectionLevel | None = None
    """Importance weights between engine and learner: per token, per sequence, or None."""
    rollout_is_threshold: float = 2.0
    """Cap of these weights."""
    kl_loss_type: KlEstimator | None = None
    """Estimator of the KL term; None is off."""
    kl_loss_coef: float = 0.001
    entropy_coeff: float = 0.0
    loss_agg_mode: LossAggregation = "token-mean"
    max_completion_tokens: int | None = None
    """The constant of `seq-mean-token-sum-norm`."""

    def __post_init__(self) -> None:
        require(0 <= self.clip_ratio_low <= 1, "clip_ratio_low must be within [0, 1]")
        require(self.clip_ratio_high >= 0, "clip_ratio_high must not be negative")
        require(self.clip_ratio_c is None or self.clip_ratio_c > 1, "clip_ratio_c must exceed 1 or be None")
        require(self.rollout_is_threshold > 0, "rollout_is_threshold must be positive")
        require(self.kl_loss_coef >= 0, "kl_loss_coef must not be negative")
        constant = self.max_completion_tokens
        require(constant is None or constant >= 1, "max_completion_tokens must be at least 1 or None")
        require(
            constant is not None or self.loss_agg_mode != "seq-mean-token-sum-norm",
            "max_completion_tokens is needed by loss_agg_mode seq-mean-token-sum-norm",
        )

    @classmethod
    def from_contract(cls, algorithm: AlgorithmConfig) -> "LossConfig":
        """The config that a call carries."""
        kl, correction = algorithm.kl_loss, algorithm.rollout_correction
        return cls(
            loss_mode=algorithm.loss_mode,
            clip_ratio_low=algorithm.clip_ratio_low,
            clip_ratio_high=algorithm.clip_ratio_high,
            clip_ratio_c=algorithm.clip_ratio_c,
            rollout_is=None if correction is None else correction.level,
            rollout_is_threshold=2.0 if correction is None else correction.threshold,
            kl_loss_type=None if kl is None else kl.estimator,
            kl_loss_coef=0.001 if kl is None else kl.coef,
            entropy_coeff=algorithm.entropy_coeff,
            loss_agg_mode=algorithm.loss_agg_mode,
            max_completion_tokens=algorithm.max_completion_tokens,
        )
