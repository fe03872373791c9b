from dataclasses import fields, replace

import pytest

from functions.learner.config import LearnerConfig
from functions.learner.credit_config import CreditConfig
from functions.learner.loss_config import LossConfig
from shared.contracts.learner import (
    AlgorithmConfig,
    KlLoss,
    KlPenalty,
    OptimConfig,
    OverlongBuffer,
    RolloutCorrection,
)
from shared.contracts.training_pass import TrainingPass
from shared.training.errors import InvalidTrainingConfig
from tests.unit.functions.learner.builders import make_config

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
ALGORITHM = AlgorithmConfig(
    adv_estimator="gae",
    norm_adv_by_std_in_grpo=False,
    gamma=0.9,
    lam=0.8,
    kl_in_reward=KlPenalty(estimator="mse", kl_coef=0.2, controller="adaptive", horizon=77, target_kl=0.3),
    overlong_buffer=OverlongBuffer(len=5, penalty_factor=0.5),
    max_completion_tokens=32,
    mask_truncated_completions=True,
    filter_groups=True,
    loss_mode="gspo",
    clip_ratio_low=0.11,
    clip_ratio_high=0.22,
    clip_ratio_c=3.0,
    kl_loss=KlLoss(estimator="low_var_kl", coef=0.04),
    rollout_correction=RolloutCorrection(level="sequence", threshold=5.0),
    loss_agg_mode="seq-mean-token-sum",
    entropy_coeff=0.01,
    ppo_epochs=2,
    ppo_mini_batch_size=7,
    max_token_len=99,
    compute=TrainingPass(enable_gradient_checkpointing=True, dtype="bfloat16"),
)


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
        {"ppo_epochs": 0},
        {"ppo_mini_batch_size": -1},
        {"max_token_len": 0},
        {"temperature": 0.0},
        {"gamma": 1.5},
        {"lam": -0.1},
        {"kl_coef": -0.1},
        {"kl_horizon": 0},
        {"kl_target": 0.0},
        {"overlong_len": 0},
        {"clip_ratio_low": 1.1},
        {"clip_ratio_high": -0.1},
        {"clip_ratio_c": 1.0},
        {"rollout_is_threshold": 0.0},
        {"kl_loss_coef": -1.0},
        {"max_completion_tokens": 0},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidTrainingConfig, match=r"total_steps" if "lr_schedule" in wrong else next(iter(wrong))):
        make_config(**wrong)


def test_a_constant_normaliser_has_to_be_given() -> None:
    with pytest.raises(InvalidTrainingConfig, match="max_completion_tokens"):
        make_config(loss_agg_mode="seq-mean-token-sum-norm")


def test_every_value_of_a_call_arrives() -> None:
    config = LearnerConfig.from_contract(OPTIM, ALGORITHM, temperature=0.7)

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
        credit=CreditConfig(
            adv_estimator="gae",
            norm_adv_by_std=False,
            gamma=0.9,
            lam=0.8,
            kl_penalty="mse",
            kl_coef=0.2,
            kl_controller="adaptive",
            kl_horizon=77,
            kl_target=0.3,
            overlong_len=5,
            overlong_penalty_factor=0.5,
            max_completion_tokens=32,
            mask_truncated=True,
            filter_groups=True,
        ),
        loss=LossConfig(
            loss_mode="gspo",
            clip_ratio_low=0.11,
            clip_ratio_high=0.22,
            clip_ratio_c=3.0,
            rollout_is="sequence",
            rollout_is_threshold=5.0,
            kl_loss_type="low_var_kl",
            kl_loss_coef=0.04,
            entropy_coeff=0.01,
            loss_agg_mode="seq-mean-token-sum",
            max_completion_tokens=32,
        ),
        ppo_epochs=2,
        ppo_mini_batch_size=7,
        max_token_len=99,
        compute=TrainingPass(enable_gradient_checkpointing=True, dtype="bfloat16"),
        temperature=0.7,
    )
    defaults = make_config()
    for ours, plain in ((config, defaults), (config.credit, defaults.credit), (config.loss, defaults.loss)):
        assert not [field.name for field in fields(ours) if getattr(ours, field.name) == getattr(plain, field.name)]


def test_what_is_not_asked_for_is_off() -> None:
    config = LearnerConfig.from_contract(OptimConfig(lr=0.01, total_steps=1), AlgorithmConfig(), temperature=1.0)

    assert (config.credit, config.loss) == (CreditConfig(), LossConfig())


def test_the_controllers_coefficient_replaces_the_first_one() -> None:
    credit = CreditConfig.from_contract(ALGORITHM, None)

    assert credit.kl_coef == 0.2
    assert CreditConfig.from_contract(ALGORITHM, 0.0) == replace(credit, kl_coef=0.0)
