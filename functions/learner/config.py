"""The run parameters of an update, as one value."""

from dataclasses import dataclass, field

from functions.learner.credit_config import CreditConfig
from functions.learner.loss_config import LossConfig
from shared.contracts.learner import AlgorithmConfig, OptimConfig
from shared.contracts.training_pass import DEFAULT_PASS, TrainingPass
from shared.training.optimizer_config import OptimizerConfig, require


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(OptimizerConfig):
    """From rewards to an optimizer step. Raises InvalidTrainingConfig."""

    credit: CreditConfig = field(default_factory=CreditConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    ppo_epochs: int = 1
    ppo_mini_batch_size: int = 0
    """Groups per optimizer update; 0 takes the whole batch."""
    max_token_len: int = 16384
    """Tokens of one micro-batch, padding included. Changes speed and memory, never the gradient."""
    compute: TrainingPass = DEFAULT_PASS
    temperature: float = 1.0
    """The one that the completions were sampled at; every logprob is taken at it."""

    def __post_init__(self) -> None:
        OptimizerConfig.__post_init__(self)
        require(self.ppo_epochs >= 1, "ppo_epochs must be at least 1")
        require(self.ppo_mini_batch_size >= 0, "ppo_mini_batch_size must not be negative")
        require(self.max_token_len >= 1, "max_token_len must be at least 1")
        require(self.temperature > 0, "temperature must be positive: logprobs are undefined at 0")

    @classmethod
    def from_contract(
        cls, optim: OptimConfig, algorithm: AlgorithmConfig, temperature: float, kl_coef: float | None = None
    ) -> "LearnerConfig":
        """The config that a call carries."""
        return cls.of(
            optim,
            credit=CreditConfig.from_contract(algorithm, kl_coef),
            loss=LossConfig.from_contract(algorithm),
            ppo_epochs=algorithm.ppo_epochs,
            ppo_mini_batch_size=algorithm.ppo_mini_batch_size,
            max_token_len=algorithm.max_token_len,
            compute=algorithm.compute,
            temperature=temperature,
        )
