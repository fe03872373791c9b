"""The loss and gradient of micro-batches against a float64 loop over sequences and tokens."""

import math
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.objective import micro_batch_loss
from functions.learner.rows import TrainRow
from functions.learner.train_batch import TrainBatch, prepare_batch
from shared.training.aggregation import LossDenominators
from shared.training.forward import trained_logits
from shared.training.metric_sums import MetricSums
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import (
    VOCAB,
    gradient_of,
    make_config,
    ragged_rows,
    relative_gap,
    tiny_model,
    with_numbers,
)
from tests.unit.functions.learner.naive_loss import naive_loss

MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
LOSSES: dict[str, dict[str, Any]] = {
    "vanilla": {},
    "gspo": {"loss_mode": "gspo"},
    "cispo": {"loss_mode": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 0.4},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "clip-higher": {"clip_ratio_high": 0.5},
    "dual clip": {"clip_ratio_c": 1.2},
    "token weights": {"rollout_is": "token", "rollout_is_threshold": 1.5},
    "sequence weights": {"rollout_is": "sequence", "rollout_is_threshold": 1.5},
    "entropy": {"entropy_coeff": 0.3},
    "temperature": {"temperature": 0.6},
    "k1": {"kl_loss_type": "kl", "kl_loss_coef": 0.2},
    "k2": {"kl_loss_type": "mse", "kl_loss_coef": 0.2},
    "k3": {"kl_loss_type": "low_var_kl", "kl_loss_coef": 0.2},
}
EVERYTHING: dict[str, Any] = {
    "clip_ratio_low": 0.1,
    "clip_ratio_high": 0.3,
    "clip_ratio_c": 1.5,
    "rollout_is": "token",
    "rollout_is_threshold": 2.0,
    "kl_loss_type": "low_var_kl",
    "kl_loss_coef": 0.05,
    "entropy_coeff": 0.1,
    "temperature": 1.3,
    "norm_adv_by_std": False,
    "mask_truncated": True,
}
SPLITS = {
    "one": [list(range(12))],
    "two": [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]],
    "four": [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]],
    "eight": [[0, 1], [2, 3], [4, 5], [6, 7], [8], [9], [10], [11]],
    "ragged": [[7], [0, 1, 2, 3, 4, 5, 6, 8, 9], [11, 10]],
}


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model()


@pytest.fixture(scope="module")
def exact() -> PreTrainedModel:
    """The same model in float64."""
    return tiny_model().double()


def config_of(mode: str = "token-mean", **fields: Any) -> LearnerConfig:
    return make_config(**{"loss_agg_mode": mode, "max_completion_tokens": 7, **fields})


def batch_of(config: LearnerConfig) -> TrainBatch:
    """Twelve ragged rows of four groups with reference logprobs; where completions are masked, two were truncated."""
    rows = sort_rows(with_numbers(ragged_rows(), "reference_logprobs"))
    for index in (4, 9):
        rows[index] = replace(rows[index], finish_reason="length")
    return prepare_batch(rows, config)


def in_the_loss(batch: TrainBatch) -> list[TrainRow]:
    """The rows with the mask that holds, for the naive loop."""
    masks = [mask[: row.num_tokens].numpy() for row, mask in zip(batch.rows, batch.loss_mask, strict=True)]
    return [replace(row, loss_mask=mask) for row, mask in zip(batch.rows, masks, strict=True)]


def old_logprobs_of(batch: TrainBatch) -> Tensor:
    """Ratios on both sides of every bound: the policy that sampled, but not the one that learns. [B, T]"""
    return torch.from_numpy(np.random.default_rng(5).uniform(-4.0, -2.0, batch.loss_mask.shape)).float()


def micro_batched(
    model: PreTrainedModel,
    batch: TrainBatch,
    old: Tensor | None,
    config: LearnerConfig,
    split: list[list[int]],
    *,
    share_prompts: bool = True,
) -> tuple[float, Tensor, dict[str, float]]:
    """Loss, gradient and metrics of the mini-batch, cut in micro-batches."""
    model.zero_grad()
    sums, total, terms = MetricSums(), 0.0, Counter[str]()
    kept = [[index for index in indices if index not in batch.out_of_loss] for indices in split]
    denominators = LossDenominators.of(batch.loss_mask, config.loss.max_completion_tokens)
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        for indices in filter(None, kept):
            rows = [batch.rows[index] for index in indices]
            tensors = batch.select(indices, old, torch.device("cpu"))
            part = micro_batch_loss(logits_of, rows, tensors, denominators, config)
            part.loss.backward()
            terms.update(part.add_to(sums))
            total += part.loss.item()
    return total, gradient_of(model), sums.reduce() | dict(terms)


def naive(exact: PreTrainedModel, batch: TrainBatch, old: Tensor | None, config: LearnerConfig) -> tuple[float, Tensor]:
    """Loss and gradient by the loop over tokens."""
    exact.zero_grad()
    loss = naive_loss(exact, in_the_loss(batch), batch.advantages, old, config)
    loss.backward()
    return loss.item(), gradient_of(exact)


def expect_those_of_the_loop(model: PreTrainedModel, exact: PreTrainedModel, config: LearnerConfig) -> None:
    batch = batch_of(config)
    old = old_logprobs_of(batch)
    expected_loss, expected = naive(exact, batch, old, config)

    loss, gradient, metrics = micro_batched(model, batch, old, config, SPLITS["two"])

    assert loss == pytest.approx(expected_loss, rel=1e-5, abs=1e-6)
    assert relative_gap(gradient, expected) < 1e-5
    assert metrics["actor/pg_clipfrac"] > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_that_of_a_float64_loop_over_tokens(
    model: PreTrainedModel, exact: PreTrainedModel, mode: str, loss: str
) -> None:
    expect_those_of_the_loop(model, exact, config_of(mode, **LOSSES[loss]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_term_is_that_of_the_loop(model: PreTrainedModel, exact: PreTrainedModel, variant: str) -> None:
    expect_those_of_the_loop(model, exact, config_of("seq-mean-token-mean", **VARIANTS[variant]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES)
def test_all_terms_together_are_those_of_the_loop(
    model: PreTrainedModel, exact: PreTrainedModel, mode: str, loss: str
) -> None:
    expect_those_of_the_loop(model, exact, config_of(mode, **EVERYTHING | LOSSES[loss]))


CUTS = list(product(MODES, LOSSES, ("kl", "mse", "low_var_kl"), ("token", "sequence")))


@pytest.mark.parametrize(
    ("mode", "loss", "kl", "weights"),
    # One in five of all combinations each time, in which every pair occurs; all of them with the slow tests.
    [pytest.param(*cut, marks=() if at % 5 == 0 else pytest.mark.slow) for at, cut in enumerate(CUTS)],
)
def test_the_cut_in_micro_batches_changes_nothing(
    model: PreTrainedModel, mode: str, loss: str, kl: str, weights: str
) -> None:
    config = config_of(mode, **EVERYTHING | LOSSES[loss] | {"kl_loss_type": kl, "rollout_is": weights})
    batch = batch_of(config)
    old = old_logprobs_of(batch)
    expected_loss, expected, expected_metrics = micro_batched(model, batch, old, config, SPLITS["one"])

    for split in ("two", "four", "eight", "ragged"):
        share = split == "four"
        value, gradient, metrics = micro_batched(model, batch, old, config, SPLITS[split], share_prompts=share)

        assert value == pytest.approx(expected_loss, rel=1e-5, abs=1e-6)
        assert relative_gap(gradient, expected) < 1e-5
        assert metrics == pytest.approx(expected_metrics, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_without_old_logprobs_the_learners_own_are_taken(
    model: PreTrainedModel, exact: PreTrainedModel, loss: str
) -> None:
    config = config_of(clip_ratio_c=3.0, **LOSSES[loss])
    batch = batch_of(config)
    _, expected = naive(exact, batch, None, config)

    _, gradient, metrics = micro_batched(model, batch, None, config, SPLITS["four"])

    assert relative_gap(gradient, expected) < 1e-5
    assert (metrics["actor/ppo_kl"], metrics["actor/pg_clipfrac"]) == (0.0, 0.0)


def test_on_fresh_rollouts_every_policy_loss_has_the_policy_gradient(model: PreTrainedModel) -> None:
    gradients = []
    for loss in LOSSES:
        config = config_of("seq-mean-token-mean", **LOSSES[loss])
        gradients.append(micro_batched(model, batch_of(config), None, config, SPLITS["one"])[1])

    assert relative_gap(gradients[1], gradients[0]) < 1e-6
    assert relative_gap(gradients[2], gradients[0]) < 1e-6


def test_metrics_are_means_over_the_tokens_of_the_whole_batch(model: PreTrainedModel) -> None:
    config = config_of(rollout_is="token", rollout_is_threshold=1.5)
    batch = batch_of(config)
    old = old_logprobs_of(batch)

    _, _, metrics = micro_batched(model, batch, old, config, SPLITS["ragged"])

    mask = batch.loss_mask
    gaps = (old.exp() - batch.rollout_logprobs.exp()).abs()[mask]
    weights = (old - batch.rollout_logprobs).exp()[mask]
    assert metrics["training/rollout_probs_diff_mean"] == pytest.approx(gaps.mean().item(), rel=1e-5)
    assert metrics["training/rollout_probs_diff_max"] == pytest.approx(gaps.max().item(), rel=1e-5)
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(weights.clamp(max=1.5).mean().item(), rel=1e-5)
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(
        (weights > 1.5).double().mean().item()
    )
    assert 0 < metrics["actor/entropy"] < math.log(VOCAB)


@pytest.mark.parametrize("garbage", [1e6, -np.inf, np.nan])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weights", ["token", "sequence"])
def test_what_stands_at_masked_positions_cannot_be_seen(
    model: PreTrainedModel, garbage: float, loss: str, weights: str
) -> None:
    config = config_of(**EVERYTHING | LOSSES[loss] | {"rollout_is": weights})
    clean = batch_of(config)
    old, mask = old_logprobs_of(clean), clean.loss_mask
    assert clean.reference_logprobs is not None
    dirty = replace(
        clean,
        advantages=torch.where(mask, clean.advantages, garbage),
        rollout_logprobs=torch.where(mask, clean.rollout_logprobs, garbage),
        reference_logprobs=torch.where(mask, clean.reference_logprobs, garbage),
    )
    expected = micro_batched(model, clean, old, config, SPLITS["two"])

    result = micro_batched(model, dirty, torch.where(mask, old, garbage), config, SPLITS["two"])

    assert result[0] == expected[0]
    assert torch.equal(result[1], expected[1])
    assert result[2] == expected[2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_without_trained_tokens_has_loss_zero_and_gradient_zero(
    model: PreTrainedModel, mode: str, loss: str
) -> None:
    config = config_of(mode, **EVERYTHING | LOSSES[loss])
    rows = sort_rows(with_numbers(ragged_rows(), "reference_logprobs"))
    batch = prepare_batch([replace(row, loss_mask=np.zeros(row.num_tokens, bool)) for row in rows], config)

    value, gradient, metrics = micro_batched(model, batch, None, config, SPLITS["two"])

    assert value == 0.0
    assert not gradient.any()
    assert metrics["actor/entropy"] == 0.0
