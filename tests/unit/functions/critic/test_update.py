"""The critic's update against a float64 loop over tokens, and what must not change it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.critic.config import CriticConfig
from functions.critic.rows import ValueRow
from functions.critic.update import ValueUpdateResult, update_values
from functions.critic.value_model import initial_value_model
from shared.training.optimizer import build_optimizer
from tests.unit.functions.learner.builders import ragged_rows, relative_gap, tiny_model

MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
CUTS = (1, 12, 25, 10_000)
"""Budgets of a micro-batch, down to one row each."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(path)
    return path


def value_model(folder: Path) -> PreTrainedModel:
    """A body whose head tells states apart."""
    model = initial_value_model(str(folder))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.get_output_embeddings().parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def value_rows() -> list[ValueRow]:
    """Twelve ragged rows of four groups; some values are within the clip range of the old ones, some beyond."""
    rng = np.random.default_rng(4)
    return [
        ValueRow(
            row_uid=row.row_uid,
            sample=row.sample,
            prompt_token_ids=row.prompt_token_ids,
            completion_token_ids=row.completion_token_ids,
            loss_mask=row.loss_mask,
            old_values=rng.normal(size=row.num_tokens).astype(np.float32),
            returns=rng.normal(size=row.num_tokens).astype(np.float32),
        )
        for row in ragged_rows()
    ]


def config_of(**fields: Any) -> CriticConfig:
    """Adam with a large epsilon moves by the gradient, where a plain one moves by its sign and hides any factor."""
    plain: dict[str, Any] = {"lr": 1e3, "eps": 1e6, "weight_decay": 0.0, "max_grad_norm": None, "total_steps": 10}
    return CriticConfig(**(plain | fields))


def updated(
    folder: Path, rows: list[ValueRow], config: CriticConfig, prepare: Callable[[PreTrainedModel], Any] | None = None
) -> tuple[Tensor, ValueUpdateResult]:
    """How far an update moves the weights, and what it says."""
    model = value_model(folder)
    if prepare is not None:
        prepare(model)
    before = weights_of(model)
    result = update_values(model, build_optimizer(model, config), rows, config, step=0)
    return (weights_of(model) - before) * config.eps / 1e3, result


def weights_of(model: PreTrainedModel) -> Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


def naive_loss(model: PreTrainedModel, rows: list[ValueRow], mode: str, cliprange: float | None) -> Tensor:
    """Token by token in float64."""
    per_row = []
    for row in rows:
        tokens = torch.from_numpy(np.concatenate([row.prompt_token_ids, row.completion_token_ids]))[None]
        values = model(input_ids=tokens).logits[0, row.prompt_token_ids.size - 1 : -1, 0]
        losses = []
        for t in np.flatnonzero(row.loss_mask):
            value, old, target = values[t], float(row.old_values[t]), float(row.returns[t])
            loss = (value - target) ** 2
            if cliprange is not None:
                clipped = torch.clamp(value, old - cliprange, old + cliprange)
                loss = torch.maximum(loss, (clipped - target) ** 2)
            losses.append(0.5 * loss)
        if losses:
            per_row.append(torch.stack(losses))
    if mode == "token-mean":
        return torch.cat(per_row).mean()
    reduce = torch.sum if mode == "seq-mean-token-sum" else torch.mean
    return torch.stack([reduce(losses) for losses in per_row]).mean()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cliprange", [None, 0.4])
def test_the_gradient_is_that_of_a_float64_loop_for_any_micro_batches(
    folder: Path, mode: str, cliprange: float | None
) -> None:
    rows = value_rows()
    exact = value_model(folder).double()
    loss = naive_loss(exact, rows, mode, cliprange)
    loss.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in exact.parameters() if parameter.grad is not None])

    for cut in CUTS:
        config = config_of(loss_agg_mode=mode, cliprange_value=cliprange, max_token_len=cut)
        moved, result = updated(folder, rows, config)

        assert result.metrics["critic/vf_loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert result.metrics["critic/grad_norm"] == pytest.approx(expected.norm().item(), rel=1e-5)
        assert torch.nn.functional.cosine_similarity(-moved, expected, dim=0) > 1 - 1e-6


def test_metrics_are_those_of_the_whole_batch_for_any_micro_batches(folder: Path) -> None:
    rows = value_rows()
    all_at_once, *cut = [updated(folder, rows, config_of(cliprange_value=0.4, max_token_len=n))[1] for n in CUTS[::-1]]

    returns = np.concatenate([row.returns[row.loss_mask] for row in rows])
    old = np.concatenate([row.old_values[row.loss_mask] for row in rows])
    metrics = all_at_once.metrics
    assert metrics["critic/returns/mean"] == pytest.approx(returns.mean(), rel=1e-5)
    assert metrics["critic/values/max"] == pytest.approx(old.max())
    assert metrics["critic/vf_explained_var"] == pytest.approx(1 - (returns - old).var() / returns.var(), rel=1e-5)
    assert 0 < metrics["critic/vf_clipfrac"] < 1
    for result in cut:
        assert result.metrics == pytest.approx(metrics, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"cliprange_value": 0.2},
        {"loss_agg_mode": "seq-mean-token-mean"},
        {"loss_agg_mode": "seq-mean-token-sum"},
        {"ppo_epochs": 2},
        {"ppo_mini_batch_size": 2},
        {"lr": 500.0},
        {"weight_decay": 1e-4},
        {"max_grad_norm": 1e-3},
        {"warmup_steps": 4},
    ],
)
def test_every_choice_makes_another_update(folder: Path, change: dict[str, Any]) -> None:
    plain, _ = updated(folder, value_rows(), config_of(cliprange_value=None))
    other, _ = updated(folder, value_rows(), config_of(**{"cliprange_value": None} | change))

    assert relative_gap(other, plain) > 1e-3


def test_the_order_of_arrival_changes_nothing(folder: Path) -> None:
    forwards, _ = updated(folder, value_rows(), config_of(ppo_mini_batch_size=2))
    backwards, _ = updated(folder, value_rows()[::-1], config_of(ppo_mini_batch_size=2))

    assert torch.equal(backwards, forwards)


def test_a_batch_without_trained_tokens_has_loss_zero_and_moves_nothing(folder: Path) -> None:
    rows = [replace(row, loss_mask=np.zeros(row.num_tokens, bool)) for row in value_rows()]
    moved, result = updated(folder, rows, config_of(max_token_len=12))

    assert not moved.any()
    assert (result.metrics["critic/vf_loss"], result.metrics["critic/grad_norm"]) == (0.0, 0.0)
    assert all(np.isfinite(value) for value in result.metrics.values())


def test_no_row_is_changed(folder: Path) -> None:
    rows, again = value_rows(), value_rows()
    updated(folder, rows, config_of(ppo_epochs=2, max_token_len=25))

    for row, same in zip(rows, again, strict=True):
        assert np.array_equal(row.old_values, same.old_values)
        assert np.array_equal(row.returns, same.returns)
        assert np.array_equal(row.loss_mask, same.loss_mask)


def test_dropout_is_off(tmp_path: Path) -> None:
    moved = []
    for rate in (0.5, 0.0):
        folder = tmp_path / str(rate)
        tiny_model(attention_dropout=rate).save_pretrained(folder)
        moved.append(updated(folder, value_rows(), config_of(), PreTrainedModel.train)[0])

    assert torch.equal(moved[0], moved[1])
