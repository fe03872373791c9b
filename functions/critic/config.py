"""The parameters of a value update, as one value."""

from dataclasses import dataclass

from shared.contracts.critic import ValueUpdateConfig
from shared.contracts.learner import LossAggregation, OptimConfig
from shared.contracts.training_pass import DEFAULT_PASS, TrainingPass
from shared.training.optimizer_config import OptimizerConfig

MICRO_BATCH_KEY = "critic.ppo_max_token_len_per_gpu"
"""What a run's config calls the tokens of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticConfig(OptimizerConfig):
    """From returns to an optimizer step. Raises InvalidTrainingConfig."""

    cliprange_value: float | None = 0.5
    loss_agg_mode: LossAggregation = "token-mean"
    ppo_epochs: int = 1
    ppo_mini_batch_size: int = 0
    max_token_len: int = 16384
    compute: TrainingPass = DEFAULT_PASS

    @classmethod
    def from_contract(cls, optim: OptimConfig, update: ValueUpdateConfig) -> "CriticConfig":
        """The config that a call carries."""
        return cls.of(
            optim,
            cliprange_value=update.cliprange_value,
            loss_agg_mode=update.loss_agg_mode,
            ppo_epochs=update.ppo_epochs,
            ppo_mini_batch_size=update.ppo_mini_batch_size,
            max_token_len=update.max_token_len,
            compute=update.compute,
        )
