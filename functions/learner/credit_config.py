"""From rewards to advantages, as one value. Names follow verl where it has one."""

from dataclasses import dataclass, replace

from shared.contracts.learner import AdvantageEstimator, AlgorithmConfig, KlController, KlEstimator
from shared.training.optimizer_config import require


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditConfig:
    """How a completion's reward becomes an advantage of each of its tokens. Raises InvalidTrainingConfig."""

    adv_estimator: AdvantageEstimator = "grpo"
    norm_adv_by_std: bool = True
    """Of `grpo`: False leaves the advantage at r − mean (Dr. GRPO)."""
    gamma: float = 1.0
    """Discount per sampled token, of `gae` and `reinforce_plus_plus`."""
    lam: float = 1.0
    """λ of `gae`."""

    kl_penalty: KlEstimator | None = None
    """Estimator of the KL penalty in the reward; None is off."""
    kl_coef: float = 0.001
    """Coefficient of this step's penalty."""
    kl_controller: KlController = "fixed"
    kl_horizon: int = 10_000
    kl_target: float = 0.1

    overlong_len: int | None = None
    """Tokens over which the soft overlong penalty rises; None is off."""
    overlong_penalty_factor: float = 1.0
    max_completion_tokens: int | None = None
    """The longest completion that rollout makes, which the overlong penalty is measured from."""
    mask_truncated: bool = False
    """Leave completions that were cut out of the loss, though not out of their group's statistics."""
    filter_groups: bool = False
    """Leave groups whose rewards are all equal out of the update: out of its gradient, where they count for
    nothing, and out of its denominators and optimizer work, where they would count (DAPO)."""

    def __post_init__(self) -> None:
        require(0 <= self.gamma <= 1, "gamma must be within [0, 1]")
        require(0 <= self.lam <= 1, "lam must be within [0, 1]")
        require(self.kl_coef >= 0, "kl_coef must not be negative")
        require(self.kl_horizon >= 1, "kl_horizon must be at least 1")
        require(self.kl_target > 0, "kl_target must be positive")
        length, longest = self.overlong_len, self.max_completion_tokens
        require(length is None or length >= 1, "overlong_len must be at least 1 or None")
        require(
            length is None or (longest is not None and length <= longest),
            "overlong_len needs a max_completion_tokens that is not below it",
        )

    @classmethod
    def from_contract(cls, algorithm: AlgorithmConfig, kl_coef: float | None) -> "CreditConfig":
        """The config that a call carries. `kl_coef` is the controller's; None before it has said anything."""
        penalty, buffer = algorithm.kl_in_reward, algorithm.overlong_buffer
        common = cls(
            adv_estimator=algorithm.adv_estimator,
            norm_adv_by_std=algorithm.norm_adv_by_std_in_grpo,
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            max_completion_tokens=algorithm.max_completion_tokens,
            overlong_len=None if buffer is None else buffer.len,
            overlong_penalty_factor=1.0 if buffer is None else buffer.penalty_factor,
            mask_truncated=algorithm.mask_truncated_completions,
            filter_groups=algorithm.filter_groups,
        )
        if penalty is None:
            return common
        return replace(
            common,
            kl_penalty=penalty.estimator,
            kl_coef=penalty.kl_coef if kl_coef is None else kl_coef,
            kl_controller=penalty.controller,
            kl_horizon=penalty.horizon,
            kl_target=penalty.target_kl,
        )
