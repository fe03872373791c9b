from dataclasses import fields

from functions.critic.config import CriticConfig
from shared.contracts.critic import ValueUpdateConfig
from shared.contracts.learner import OptimConfig
from shared.contracts.training_pass import TrainingPass

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
UPDATE = ValueUpdateConfig(
    cliprange_value=0.3,
    loss_agg_mode="seq-mean-token-mean",
    ppo_epochs=2,
    ppo_mini_batch_size=7,
    max_token_len=99,
    compute=TrainingPass(enable_gradient_checkpointing=True, dtype="bfloat16"),
)


def test_every_value_of_a_call_arrives() -> None:
    config = CriticConfig.from_contract(OPTIM, UPDATE)

    assert config == CriticConfig(
        lr=0.5,
        lr_schedule="cosine",
        warmup_steps=3,
        total_steps=50,
        min_lr_ratio=0.2,
        betas=(0.7, 0.8),
        eps=1e-5,
        weight_decay=0.3,
        max_grad_norm=2.0,
        cliprange_value=0.3,
        loss_agg_mode="seq-mean-token-mean",
        ppo_epochs=2,
        ppo_mini_batch_size=7,
        max_token_len=99,
        compute=TrainingPass(enable_gradient_checkpointing=True, dtype="bfloat16"),
    )
    plain = CriticConfig(lr=0.01, total_steps=1)
    assert not [field.name for field in fields(config) if getattr(config, field.name) == getattr(plain, field.name)]
    for given in (OPTIM, UPDATE):
        assert type(given).model_fields.keys() == given.model_fields_set, "a value that is left out here may be lost"


def test_what_is_not_asked_for_is_what_the_contract_says() -> None:
    config = CriticConfig.from_contract(OptimConfig(lr=0.01, total_steps=1), ValueUpdateConfig())

    assert config == CriticConfig(lr=0.01, total_steps=1)
