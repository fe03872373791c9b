import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from functions.learner.errors import MissingReward
from functions.learner.rows import TrainRow
from shared.training.errors import InvalidRows, NonFiniteGradient
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob
from tests.unit.functions.learner.builders import (
    VOCAB,
    make_config,
    make_row,
    ragged_rows,
)
from tests.unit.functions.learner.learner import Learner, Passes

MANY_UPDATES = make_config(ppo_epochs=2, ppo_mini_batch_size=2, max_token_len=30, weight_decay=0.1)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_replay_is_bit_equal_whatever_the_arrival(num_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        learners = [Learner(MANY_UPDATES), Learner(MANY_UPDATES)]
        for step in range(2):
            rows = ragged_rows(seed=step)
            arrived = rows.copy()
            random.Random(step).shuffle(arrived)
            results = [learner.step(batch, step) for learner, batch in zip(learners, (rows, arrived), strict=True)]
            assert results[0].metrics == results[1].metrics
            assert results[0].packing_plan == results[1].packing_plan
    finally:
        torch.set_num_threads(before)

    assert torch.equal(learners[0].weights(), learners[1].weights())
    assert not torch.equal(learners[0].weights(), Learner(MANY_UPDATES).weights())


def test_the_size_of_micro_batches_changes_nothing_but_rounding() -> None:
    rows = ragged_rows()
    config = make_config(weight_decay=0.0)
    sizes = {}
    weights = {}
    # One update of plain Adam turns the gradient into its sign; several steps show its size.
    for max_token_len in (1, 20, 50, 10_000):
        learner = Learner(replace(config, max_token_len=max_token_len))
        for step in range(3):
            sizes[max_token_len] = len(learner.step(rows, step).packing_plan[0])
        weights[max_token_len] = learner.weights()

    assert sizes[1] == 12
    assert sizes[1] > sizes[20] > sizes[50] > sizes[10_000] == 1
    for max_token_len in (1, 20, 50):
        torch.testing.assert_close(weights[max_token_len], weights[10_000], atol=1e-4, rtol=1e-4)


def test_the_gradient_is_that_of_the_rewarded_tokens() -> None:
    """A step towards better completions makes them likelier, and worse ones less likely."""
    rows = [make_row("a", s, completion=(5 + s, 7), reward=float(s)) for s in range(2)]
    learner = Learner(make_config(lr=1e-3))
    before = [sequence_logprob(learner.model, row) for row in rows]

    learner.step(rows)

    after = [sequence_logprob(learner.model, row) for row in rows]
    assert after[0] < before[0]
    assert after[1] > before[1]


def sequence_logprob(model: PreTrainedModel, row: TrainRow) -> float:
    token_ids = torch.from_numpy(np.concatenate([row.prompt_token_ids, row.completion_token_ids]))
    with torch.no_grad():
        logprobs = model(input_ids=token_ids[None]).logits[0].log_softmax(-1)
    chosen = logprobs[:-1].gather(-1, token_ids[1:, None])
    return chosen[row.prompt_token_ids.size - 1 :].sum().item()


def test_one_update_takes_its_own_logprobs_and_many_take_the_first_ones() -> None:
    rows = ragged_rows()
    # Four passes for the old logprobs, two for the first update.
    plan = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    single = Learner(make_config()).step(rows).metrics
    several = Learner(MANY_UPDATES).step(rows).metrics
    first_of_several = Learner(MANY_UPDATES).step(rows, packing_plan=plan, budget=Passes(6)).metrics

    assert single["actor/ppo_kl"] == 0.0
    assert first_of_several["actor/ppo_kl"] == pytest.approx(0.0, abs=1e-6)
    assert several["actor/ppo_kl"] > 1e-4
    assert several["training/rollout_probs_diff_mean"] == pytest.approx(
        single["training/rollout_probs_diff_mean"], rel=1e-5
    )


def test_engine_and_learner_agree_where_the_rollout_was_made_by_these_weights() -> None:
    learner = Learner(make_config(temperature=0.8))
    rows = [replace(row, rollout_logprobs=own_logprobs(learner.model, row, 0.8)) for row in ragged_rows()]

    metrics = learner.step(rows).metrics

    assert metrics["training/rollout_logprobs_diff_max"] < 1e-5


def own_logprobs(model: PreTrainedModel, row: TrainRow, temperature: float) -> np.ndarray:
    token_ids = torch.from_numpy(np.concatenate([row.prompt_token_ids, row.completion_token_ids]))
    with torch.no_grad():
        logprobs = (model(input_ids=token_ids[None]).logits[0] / temperature).log_softmax(-1)
    return logprobs[:-1].gather(-1, token_ids[1:, None])[row.prompt_token_ids.size - 1 :, 0].numpy()


def test_all_metrics_have_their_names() -> None:
    metrics = Learner(make_config(lr=0.5, lr_schedule="linear", total_steps=10)).step(ragged_rows(), step=5).metrics

    summaries = ("critic/score", "critic/rewards", "critic/advantages", "prompt_length", "response_length")
    assert set(metrics) == {
        *(f"{name}/{statistic}" for name in summaries for statistic in ("mean", "max", "min")),
        "response_length/clip_ratio",
        "frac_reward_zero_std",
        "perf/total_num_tokens",
        "actor/pg_loss",
        "actor/pg_clipfrac",
        "actor/pg_clipfrac_lower",
        "actor/ppo_kl",
        "actor/entropy",
        "actor/grad_norm",
        "actor/lr",
        "training/num_filtered_groups",
        "training/rollout_probs_diff_mean",
        "training/rollout_probs_diff_max",
        "training/rollout_logprobs_diff_mean",
        "training/rollout_logprobs_diff_max",
    }
    assert metrics["actor/lr"] == 0.25
    assert metrics["actor/grad_norm"] > 0
    assert all(type(value) is float for value in metrics.values())


def test_the_learning_rate_is_that_of_the_step_whatever_came_before() -> None:
    config = make_config(lr_schedule="linear", total_steps=4, weight_decay=0.0)
    learner, stopped = Learner(config), Learner(config)
    rows = ragged_rows()
    before = stopped.weights()

    learner.step(rows, step=2)
    stopped.step(rows, step=4)

    assert torch.equal(stopped.weights(), before)
    assert not torch.equal(learner.weights(), before)


@pytest.mark.parametrize("change", [{"betas": (0.5, 0.6)}, {"eps": 1.0}, {"weight_decay": 0.5}])
def test_an_optimizer_kept_from_another_config_follows_this_one(change: dict[str, Any]) -> None:
    config = make_config(**change)
    kept, fresh = Learner(make_config()), Learner(config)
    kept.config = config
    for step in range(2):
        kept.step(ragged_rows(), step)
        fresh.step(ragged_rows(), step)

    assert torch.equal(kept.weights(), fresh.weights())


@pytest.mark.parametrize("bad_step", [0, 1])
def test_a_gradient_that_is_not_finite_is_not_applied(bad_step: int) -> None:
    learner = Learner(make_config())
    for step in range(bad_step):
        learner.step(ragged_rows(), step)
    with torch.no_grad():
        learner.model.lm_head.weight[3, 0] = torch.nan
    before = learner.weights(), optimizer_state_to_blob(learner.optimizer, learner.model)

    with pytest.raises(NonFiniteGradient):
        learner.step(ragged_rows(), bad_step)

    torch.testing.assert_close(learner.weights(), before[0], rtol=0, atol=0, equal_nan=True)
    assert optimizer_state_to_blob(learner.optimizer, learner.model) == before[1]
    assert all(parameter.grad is None for parameter in learner.model.parameters())


@pytest.mark.parametrize("share_prompts", [False, True])
def test_dropout_is_off(share_prompts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.learner.update.supports_prompt_sharing", lambda model: share_prompts)
    learners = [Learner(make_config(), attention_dropout=rate) for rate in (0.5, 0.0)]
    for learner in learners:
        learner.model.train()
        learner.step(ragged_rows())

    assert torch.equal(learners[0].weights(), learners[1].weights())


def test_a_parameter_that_no_row_reaches_has_its_state_too() -> None:
    learner = Learner(make_config())
    learner.model.unused = torch.nn.Parameter(torch.ones(2))
    learner.optimizer = build_optimizer(learner.model, make_config())

    learner.step(ragged_rows())

    blob = optimizer_state_to_blob(learner.optimizer, learner.model)
    load_optimizer_state(learner.optimizer, learner.model, blob)
    assert optimizer_state_to_blob(learner.optimizer, learner.model) == blob


def test_a_gradient_that_was_left_behind_is_not_applied() -> None:
    clean, dirty = Learner(make_config()), Learner(make_config())
    for parameter in dirty.model.parameters():
        parameter.grad = torch.ones_like(parameter)

    for learner in (clean, dirty):
        learner.step(ragged_rows())

    assert torch.equal(clean.weights(), dirty.weights())


def test_groups_without_spread_move_nothing_where_they_are_filtered() -> None:
    rows = ragged_rows()
    flat = [make_row("z", sample, completion=(4, 5, 6), reward=0.25) for sample in range(3)]
    without, filtered, counted = (
        Learner(make_config(filter_groups=filter_groups)) for filter_groups in (False, True, False)
    )

    expected = without.step(rows).metrics
    metrics = filtered.step(rows + flat).metrics
    counted_metrics = counted.step(rows + flat).metrics

    assert torch.equal(filtered.weights(), without.weights())
    assert metrics["actor/grad_norm"] == expected["actor/grad_norm"]
    assert counted_metrics["actor/grad_norm"] < expected["actor/grad_norm"]
    assert metrics["frac_reward_zero_std"] == 0.2


def test_a_batch_that_is_filtered_away_leaves_the_model_as_it_is() -> None:
    learner = Learner(make_config(filter_groups=True))
    before = learner.weights()

    result = learner.step([make_row("a", sample, reward=1.0) for sample in range(2)])

    assert result.num_updates == 0
    assert result.progress is None
    assert result.metrics["frac_reward_zero_std"] == 1.0
    assert torch.equal(learner.weights(), before)


def test_a_batch_without_trained_tokens_has_an_update_of_gradient_zero() -> None:
    learner = Learner(make_config(weight_decay=0.0))
    before = learner.weights()

    result = learner.step([replace(row, loss_mask=np.zeros(row.num_tokens, bool)) for row in ragged_rows()])

    assert result.num_updates == 1
    assert (result.metrics["actor/pg_loss"], result.metrics["actor/grad_norm"]) == (0.0, 0.0)
    assert torch.equal(learner.weights(), before)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([make_row("a", 0, reward=None), make_row("a", 1)], MissingReward),
        ([make_row("a", 0, completion=(VOCAB,)), make_row("a", 1)], InvalidRows),
        ([make_row("a", 0, prompt=(1, VOCAB)), make_row("a", 1)], InvalidRows),
        ([make_row("a", 0, completion=(-1, 1)), make_row("a", 1)], InvalidRows),
        ([], InvalidRows),
    ],
)
def test_a_bad_batch_changes_nothing(rows: list[TrainRow], error: type[Exception]) -> None:
    learner = Learner(make_config())
    before = learner.weights()

    with pytest.raises(error):
        learner.step(rows)

    assert torch.equal(learner.weights(), before)
    assert not learner.optimizer.state


def test_a_model_that_cannot_share_prompts_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ragged_rows()
    shared, plain = Learner(MANY_UPDATES), Learner(MANY_UPDATES)
    shared.step(rows)

    monkeypatch.setattr("functions.learner.update.supports_prompt_sharing", lambda model: False)
    plain.step(rows)

    torch.testing.assert_close(plain.weights(), shared.weights(), atol=1e-4, rtol=1e-4)


def test_truncated_completions_are_left_out_of_the_update() -> None:
    """Whatever they are like: only their rewards count, in their group's statistics."""
    rows = ragged_rows()
    rows[1] = replace(rows[1], finish_reason="length")
    other = replace(rows[1], completion_token_ids=[7] * 9, loss_mask=[True] * 9, rollout_logprobs=[-1.0] * 9)
    learners = [Learner(make_config(mask_truncated=True)) for _ in range(2)]

    first = learners[0].step(rows)
    learners[1].step([rows[0], other, *rows[2:]])

    assert torch.equal(learners[0].weights(), learners[1].weights())
    assert first.metrics["training/num_masked_completions"] == 1.0
    assert 1 not in [index for mini_batch in first.packing_plan for micro in mini_batch for index in micro]


def test_a_batch_that_was_truncated_as_a_whole_leaves_the_model_as_it_is() -> None:
    learner = Learner(make_config(mask_truncated=True))
    before = learner.weights()

    result = learner.step([replace(row, finish_reason="length") for row in ragged_rows()])

    assert (result.num_updates, result.packing_plan) == (0, [])
    assert torch.equal(learner.weights(), before)
