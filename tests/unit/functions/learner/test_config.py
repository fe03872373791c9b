from dataclasses import fields

import pytest

from functions.learner.config import LearnerConfig
from shared.contracts.learner import AlgorithmConfig, OptimConfig
from shared.training.errors import InvalidTrainingConfig
from tests.unit.functions.learner.builders import make_config


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": 0.0},
        {"warmup_steps": -1},
        {"lr_schedule": "linear", "total_steps": 0},
        {"lr_schedule": "cosine", "total_steps": 10, "warmup_steps": 10},
        {"min_lr_ratio": 1.5},
        {"betas": (0.9, 1.0)},
        {"eps": 0.0},
        {"weight_decay": -0.1},
        {"max_grad_norm": 0.0},
        {"clip_ratio_low": 1.0},
        {"clip_ratio_high": -0.1},
        {"clip_ratio_c": 1.0},
        {"rollout_is_threshold": 0.0},
        {"ppo_epochs": 0},
        {"ppo_mini_batch_size": -1},
        {"max_token_len": 0},
        {"temperature": 0.0},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidTrainingConfig, match=r"total_steps" if "lr_schedule" in wrong else next(iter(wrong))):
        make_config(**wrong)


def test_every_value_of_a_call_arrives() -> None:
    optim = OptimConfig(
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
    algorithm = AlgorithmConfig(
        norm_adv_by_std_in_grpo=False,
        clip_ratio_low=0.11,
        clip_ratio_high=0.22,
        clip_ratio_c=3.0,
        loss_agg_mode="seq-mean-token-sum",
        entropy_coeff=0.01,
        ppo_epochs=2,
        ppo_mini_batch_size=7,
        max_token_len=99,
    )

    config = LearnerConfig.from_contract(optim, algorithm, temperature=0.7)

    assert config == LearnerConfig(
        lr=0.5,
        lr_schedule="cosine",
        warmup_steps=3,
        total_steps=50,
        min_lr_ratio=0.2,
        betas=(0.7, 0.8),
        eps=1e-5,
        weight_decay=0.3,
        max_grad_norm=2.0,
        norm_adv_by_std=False,
        clip_ratio_low=0.11,
        clip_ratio_high=0.22,
        clip_ratio_c=3.0,
        entropy_coeff=0.01,
        loss_agg_mode="seq-mean-token-sum",
        ppo_epochs=2,
        ppo_mini_batch_size=7,
        max_token_len=99,
        temperature=0.7,
    )
    defaults = make_config()
    not_carried = {"adv_estimator", "filter_groups", "rollout_is_threshold"}
    same = {field.name for field in fields(config) if getattr(config, field.name) == getattr(defaults, field.name)}
    assert same == not_carried
