"""AdamW and its learning-rate schedule, as one value."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from shared.contracts.learner import OptimConfig
from shared.training.errors import InvalidTrainingConfig

LrSchedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """How a gradient changes the weights. Raises InvalidTrainingConfig."""

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

    def __post_init__(self) -> None:
        require(self.lr > 0, "lr must be positive")
        require(self.warmup_steps >= 0, "warmup_steps must not be negative")
        decays = self.lr_schedule != "constant"
        require(not decays or self.total_steps > self.warmup_steps, "total_steps must exceed warmup_steps")
        require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio must be within [0, 1]")
        require(all(0 <= beta < 1 for beta in self.betas), "betas must be within [0, 1)")
        require(self.eps > 0, "eps must be positive")
        require(self.weight_decay >= 0, "weight_decay must not be negative")
        require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm must be positive or None")

    @classmethod
    def of(cls, optim: OptimConfig, **others: Any) -> Self:
        """What a call carries, with the fields that a subclass has besides. Raises InvalidTrainingConfig."""
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
            **others,
        )


def require(condition: bool, message: str) -> None:
    """Raises InvalidTrainingConfig with the message unless the condition holds."""
    if not condition:
        raise InvalidTrainingConfig(message)
