"""The loss and gradient of micro-batches against a float64 loop over sequences and tokens."""

import math
from dataclasses import replace

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
from tests.unit.functions.learner.builders import (
    VOCAB,
    gradient_of,
    make_config,
    ragged_rows,
    relative_gap,
    tiny_model,
)

MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
VARIANTS = {
    "symmetric": {},
    "clip-higher": {"clip_ratio_high": 0.5},
    "dual clip": {"clip_ratio_c": 1.2},
    "importance weights": {"rollout_is_threshold": 1.5},
    "entropy": {"entropy_coeff": 0.3},
    "temperature": {"temperature": 0.6},
    "everything": {
        "clip_ratio_low": 0.1,
        "clip_ratio_high": 0.3,
        "clip_ratio_c": 1.5,
        "rollout_is_threshold": 2.0,
        "entropy_coeff": 0.1,
        "temperature": 1.3,
        "norm_adv_by_std": False,
    },
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


def old_logprobs_of(batch: TrainBatch) -> Tensor:
    """Ratios on both sides of every bound: the policy that sampled, but not the one that learns. [B, T]"""
    return torch.from_numpy(np.random.default_rng(5).uniform(-4.0, -2.0, batch.loss_mask.shape)).float()


def naive_loss(
    model: PreTrainedModel, rows: list[TrainRow], advantages: Tensor, old: Tensor | None, config: LearnerConfig
) -> Tensor:
    """The mini-batch's loss in float64, token by token, by the papers' formulas."""
    policy_terms, entropy_terms = [], []
    for number, row in enumerate(rows):
        sequence = torch.from_numpy(np.concatenate([row.prompt_token_ids, row.completion_token_ids]))
        logits = model(input_ids=sequence[None]).logits[0]
        policy_row, entropy_row = [], []
        for position in np.flatnonzero(row.loss_mask):
            scaled = logits[row.prompt_token_ids.size - 1 + position] / config.temperature
            probs = torch.softmax(scaled, -1)
            logprob = probs[row.completion_token_ids[position]].log()
            old_logprob = logprob.item() if old is None else old[number, position].item()
            advantage = advantages[number, position].item()
            ratio = (logprob - old_logprob).exp()
            bounded = ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
            loss = torch.maximum(-advantage * ratio, -advantage * bounded)
            if config.clip_ratio_c is not None and advantage < 0:
                loss = loss.clamp(max=-advantage * config.clip_ratio_c)
            if config.rollout_is_threshold is not None:
                weight = math.exp(old_logprob - float(row.rollout_logprobs[position]))
                loss = loss * min(weight, config.rollout_is_threshold)
            policy_row.append(loss)
            entropy_row.append(-(probs * probs.log()).sum())
        policy_terms.append(policy_row)
        entropy_terms.append(entropy_row)
    return naive_mean(policy_terms, config) - config.entropy_coeff * naive_mean(entropy_terms, config)


def naive_mean(terms: list[list[Tensor]], config: LearnerConfig) -> Tensor:
    rows = [torch.stack(row) for row in terms if row]
    if config.loss_agg_mode == "token-mean":
        return torch.cat(rows).mean()
    per_row = [row.sum() if config.loss_agg_mode == "seq-mean-token-sum" else row.mean() for row in rows]
    return torch.stack(per_row).mean()


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
    sums, total = MetricSums(), 0.0
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        for indices in split:
            rows = [batch.rows[index] for index in indices]
            tensors = batch.select(indices, old, torch.device("cpu"))
            part = micro_batch_loss(logits_of, rows, tensors, LossDenominators.of(batch.loss_mask), config)
            part.loss.backward()
            part.add_to(sums)
            total += part.loss.item()
    return total, gradient_of(model), sums.reduce()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_gradient_are_those_of_a_float64_loop_over_tokens(
    model: PreTrainedModel, mode: str, variant: str
) -> None:
    config = make_config(loss_agg_mode=mode, **VARIANTS[variant])
    batch = prepare_batch(ragged_rows(), config, VOCAB)
    old = old_logprobs_of(batch)
    exact = tiny_model().double()
    expected = naive_loss(exact, batch.rows, batch.advantages, old, config)
    expected.backward()

    loss, gradient, metrics = micro_batched(model, batch, old, config, SPLITS["two"])

    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert relative_gap(gradient, gradient_of(exact)) < 1e-5
    assert metrics["actor/pg_clipfrac"] > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("share_prompts", [False, True])
def test_the_cut_in_micro_batches_changes_nothing(
    model: PreTrainedModel, mode: str, split: str, share_prompts: bool
) -> None:
    config = make_config(loss_agg_mode=mode, **VARIANTS["everything"])
    batch = prepare_batch(ragged_rows(), config, VOCAB)
    old = old_logprobs_of(batch)
    expected_loss, expected, expected_metrics = micro_batched(model, batch, old, config, SPLITS["one"])

    loss, gradient, metrics = micro_batched(model, batch, old, config, SPLITS[split], share_prompts=share_prompts)

    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert relative_gap(gradient, expected) < 1e-5
    assert metrics == pytest.approx(expected_metrics, rel=1e-5)


def test_without_old_logprobs_the_learners_own_are_taken(model: PreTrainedModel) -> None:
    config = make_config(clip_ratio_c=3.0)
    batch = prepare_batch(ragged_rows(), config, VOCAB)
    exact = tiny_model().double()
    naive_loss(exact, batch.rows, batch.advantages, None, config).backward()

    _, gradient, metrics = micro_batched(model, batch, None, config, SPLITS["four"])

    assert relative_gap(gradient, gradient_of(exact)) < 1e-5
    assert (metrics["actor/ppo_kl"], metrics["actor/pg_clipfrac"]) == (0.0, 0.0)


def test_metrics_are_means_over_the_tokens_of_the_whole_batch(model: PreTrainedModel) -> None:
    config = make_config(rollout_is_threshold=1.5)
    batch = prepare_batch(ragged_rows(), config, VOCAB)
    old = old_logprobs_of(batch)

    _, _, metrics = micro_batched(model, batch, old, config, SPLITS["ragged"])

    mask = batch.loss_mask
    gaps = (old.exp() - batch.rollout_logprobs.exp()).abs()[mask]
    weights = (old - batch.rollout_logprobs).exp().clamp(max=1.5)[mask]
    assert metrics["training/rollout_probs_diff_mean"] == pytest.approx(gaps.mean().item(), rel=1e-5)
    assert metrics["training/rollout_probs_diff_max"] == pytest.approx(gaps.max().item(), rel=1e-5)
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(weights.mean().item(), rel=1e-5)
    assert 0 < metrics["actor/entropy"] < math.log(VOCAB)


@pytest.mark.parametrize("garbage", [1e6, -np.inf, np.nan])
def test_what_stands_at_masked_positions_cannot_be_seen(model: PreTrainedModel, garbage: float) -> None:
    config = make_config(**VARIANTS["everything"])
    clean = prepare_batch(ragged_rows(), config, VOCAB)
    old = old_logprobs_of(clean)
    dirty = replace(
        clean,
        advantages=torch.where(clean.loss_mask, clean.advantages, garbage),
        rollout_logprobs=torch.where(clean.loss_mask, clean.rollout_logprobs, garbage),
    )
    expected = micro_batched(model, clean, old, config, SPLITS["two"])

    result = micro_batched(model, dirty, torch.where(clean.loss_mask, old, garbage), config, SPLITS["two"])

    assert result[0] == expected[0]
    assert torch.equal(result[1], expected[1])
    assert result[2] == expected[2]


def test_a_batch_without_trained_tokens_has_loss_zero_and_gradient_zero(model: PreTrainedModel) -> None:
    config = make_config(**VARIANTS["everything"])
    rows = [replace(row, loss_mask=np.zeros(row.num_tokens, bool)) for row in ragged_rows()]
    batch = prepare_batch(rows, config, VOCAB)

    loss, gradient, metrics = micro_batched(model, batch, None, config, SPLITS["two"])

    assert loss == 0.0
    assert not gradient.any()
    assert metrics["actor/entropy"] == 0.0
