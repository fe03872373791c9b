from dataclasses import dataclass, fields

from shared.contracts.learner import OptimConfig
from shared.training.optimizer_config import OptimizerConfig

OPTIM = OptimConfig(
    lr=0.5,
    lr_scheduler_type="cosine",
    lr_warmup_steps=3,
    min_lr_ratio=0.2,
    total_steps=50,
    betas=(0.7, 0.8),
    eps=1e-5,
    weight_decay=0.3,
    grad_clip=2.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithMore(OptimizerConfig):
    """What a stage has besides."""

    more: int = 0


def test_every_value_of_a_call_arrives() -> None:
    config = WithMore.of(OPTIM, more=7)

    assert config == WithMore(
        lr=0.5,
        lr_schedule="cosine",
        warmup_steps=3,
        total_steps=50,
        min_lr_ratio=0.2,
        betas=(0.7, 0.8),
        eps=1e-5,
        weight_decay=0.3,
        max_grad_norm=2.0,
        more=7,
    )
    plain = WithMore(lr=0.01)
    assert not [field.name for field in fields(config) if getattr(config, field.name) == getattr(plain, field.name)]
    assert OptimConfig.model_fields.keys() == OPTIM.model_fields_set, "a value that is left out here may be lost"
