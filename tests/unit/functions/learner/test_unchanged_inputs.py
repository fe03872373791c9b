"""A step reads its batch and changes nothing of it, so that whoever reads it next sees the same."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from functions.learner.config import LearnerConfig
from functions.learner.objective import micro_batch_loss
from functions.learner.rows import TrainRow
from functions.learner.train_batch import prepare_batch
from shared.training.aggregation import LossDenominators
from shared.training.forward import trained_logits
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import make_config, ragged_rows, tiny_model, with_numbers
from tests.unit.functions.learner.learner import Learner

EVERYTHING: dict[str, Any] = {
    "clip_ratio_c": 1.5,
    "rollout_is": "token",
    "kl_loss_type": "low_var_kl",
    "kl_loss_coef": 0.05,
    "entropy_coeff": 0.1,
    "temperature": 0.7,
    "mask_truncated": True,
    "max_completion_tokens": 7,
}
CHOICES: list[dict[str, Any]] = [
    {"loss_mode": loss, "kl_loss_type": kl, "rollout_is": weights}
    for loss, kl, weights in (
        ("vanilla", "kl", "token"),
        ("gspo", "mse", "sequence"),
        ("cispo", "low_var_kl", "token"),
    )
]


def rows_with_numbers() -> list[TrainRow]:
    rows = sort_rows(with_numbers(ragged_rows(), "reference_logprobs", "values", "old_logprobs"))
    rows[4] = replace(rows[4], finish_reason="length")
    return rows


def config_of(choice: dict[str, Any], **fields: Any) -> LearnerConfig:
    return make_config(**EVERYTHING | {"loss_agg_mode": "seq-mean-token-sum-norm"} | choice | fields)


def assert_same_rows(rows: list[TrainRow], again: list[TrainRow]) -> None:
    for row, same in zip(rows, again, strict=True):
        for field in fields(row):
            assert np.array_equal(getattr(row, field.name), getattr(same, field.name)), field.name


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["loss_mode"])
def test_the_loss_and_its_gradient(choice: dict[str, Any]) -> None:
    config, rows = config_of(choice), rows_with_numbers()
    batch, indices = prepare_batch(rows, config), list(range(len(rows)))
    old = torch.full(batch.loss_mask.shape, -3.0)
    tensors = batch.select(indices, old, torch.device("cpu"))
    before = {field.name: getattr(tensors, field.name).clone() for field in fields(tensors)}

    with trained_logits(tiny_model(), share_prompts=True) as logits_of:
        denominators = LossDenominators.of(batch.loss_mask, 7)
        micro_batch_loss(logits_of, rows, tensors, denominators, config).loss.backward()

    for name, tensor in before.items():
        assert torch.equal(getattr(tensors, name), tensor), name
    assert_same_rows(rows, rows_with_numbers())


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["loss_mode"])
@pytest.mark.parametrize("estimator", ["gae", "grpo"])
def test_a_whole_step(choice: dict[str, Any], estimator: str) -> None:
    config = config_of(
        choice,
        adv_estimator=estimator,
        kl_penalty="kl",
        kl_coef=0.1,
        ppo_epochs=2,
        ppo_mini_batch_size=2,
        overlong_len=2,
    )
    rows = rows_with_numbers()

    Learner(config).step(rows)

    assert_same_rows(rows, rows_with_numbers())
