"""From rewards to advantages: shaping, penalty and estimator together."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.advantage import ADVANTAGE_ESTIMATORS
from functions.learner.credit import assign_credit, needs_old_logprobs
from functions.learner.credit_config import CreditConfig
from functions.learner.errors import MissingReward, MissingValues
from functions.learner.rows import TrainRow
from shared.training.padding import pad_to_batch
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import make_row, ragged_rows, with_numbers

ESTIMATORS = sorted(ADVANTAGE_ESTIMATORS)
EVERYTHING = {
    "gamma": 0.95,
    "kl_penalty": "kl",
    "kl_coef": 0.1,
    "overlong_len": 3,
    "max_completion_tokens": 7,
    "mask_truncated": True,
}


def everything(estimator: str) -> CreditConfig:
    lam = 0.9 if estimator == "gae" else 1.0
    return CreditConfig(adv_estimator=estimator, lam=lam, **EVERYTHING)  # type: ignore[arg-type]


def rows_with_everything(seed: int = 0) -> list[TrainRow]:
    rows = with_numbers(ragged_rows(seed=seed), "reference_logprobs", "values", "old_logprobs", seed=seed)
    rows[5] = replace(rows[5], finish_reason="length")
    return rows


def old_logprobs_of(rows: list[TrainRow]) -> torch.Tensor:
    return pad_to_batch([row.old_logprobs for row in rows if row.old_logprobs is not None])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("garbage", [1e6, np.inf, np.nan])
def test_what_stands_at_masked_positions_cannot_be_seen(estimator: str, garbage: float) -> None:
    clean = rows_with_everything()
    names = ("reference_logprobs", "values", "old_logprobs", "rollout_logprobs")
    dirty = [
        replace(row, **{name: np.where(row.loss_mask, getattr(row, name), garbage) for name in names}) for row in clean
    ]

    expected, result = (assign_credit(rows, everything(estimator), old_logprobs_of(rows)) for rows in (clean, dirty))

    assert torch.equal(result.advantages, expected.advantages)
    assert torch.equal(result.returns, expected.returns)
    assert result.metrics == expected.metrics
    assert torch.isfinite(result.advantages).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_arrival_does_not_matter(estimator: str, seed: int) -> None:
    rows = rows_with_everything()
    arrived = rows.copy()
    random.Random(seed).shuffle(arrived)

    ours, theirs = (
        assign_credit(batch, everything(estimator), old_logprobs_of(batch)) for batch in map(sort_rows, (rows, arrived))
    )

    assert torch.equal(ours.advantages, theirs.advantages)
    assert torch.equal(ours.returns, theirs.returns)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_longer_neighbour_changes_no_ones_credit(estimator: str, seed: int) -> None:
    """Padding to a longer row is of no consequence; the new group has no place in the whitening either."""
    rows = rows_with_everything(seed)
    cut = [
        make_row("zz", s, completion=range(12), reward=0.5, finish_reason="length", old_logprobs=[-1.0] * 12)
        for s in range(2)
    ]
    cut = with_numbers(cut, "reference_logprobs", "values")

    alone = assign_credit(rows, everything(estimator), old_logprobs_of(rows))
    together = assign_credit(rows + cut, everything(estimator), old_logprobs_of(rows + cut))

    length = alone.advantages.shape[1]
    assert torch.equal(together.advantages[: len(rows), :length], alone.advantages)
    assert not together.advantages[len(rows) :].any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_row_is_changed(estimator: str) -> None:
    rows, again = rows_with_everything(), rows_with_everything()
    old = old_logprobs_of(rows)
    before = old.clone()

    assign_credit(rows, everything(estimator), old)

    assert torch.equal(old, before)
    for row, same in zip(rows, again, strict=True):
        assert row.reward == same.reward
        assert np.array_equal(row.values, same.values)


def test_a_truncated_completion_stays_in_its_groups_statistics() -> None:
    rows = [make_row("a", s, reward=r) for s, r in enumerate((0.0, 1.0, 2.0))]
    rows[2] = replace(rows[2], finish_reason="length")
    config = CreditConfig(norm_adv_by_std=False, mask_truncated=True)

    credit = assign_credit(rows, config, None)

    assert credit.advantages[:, 0].tolist() == [-1.0, 0.0, 0.0]
    assert credit.metrics["critic/rewards/mean"] == 1.0


def test_a_long_completion_pays_before_it_is_compared_and_is_reported() -> None:
    rows = [make_row("a", s, completion=range(n), reward=1.0) for s, n in enumerate((4, 2))]
    config = CreditConfig(norm_adv_by_std=False, overlong_len=2, max_completion_tokens=4)

    credit = assign_credit(rows, config, None)

    assert credit.advantages[:, 0].tolist() == [-0.5, 0.5]
    assert credit.metrics["critic/rewards/min"] == 0.0
    assert credit.metrics["reward/overlong_penalty/mean"] == 0.5


def test_the_kl_penalty_is_taken_off_and_reported() -> None:
    rows = [
        make_row("a", s, reward=1.0, reference_logprobs=[-1.0, -1.0], old_logprobs=[-1.0, -1.0 + s]) for s in range(2)
    ]
    config = CreditConfig(norm_adv_by_std=False, kl_penalty="kl", kl_coef=0.5)

    credit = assign_credit(rows, config, old_logprobs_of(rows))

    assert credit.advantages[:, 0].tolist() == [0.25, -0.25]
    assert credit.next_kl_coef == 0.5
    assert credit.metrics["actor/reward_kl_penalty"] == pytest.approx(0.25)
    assert credit.metrics["actor/reward_kl_penalty_coeff"] == 0.5
    assert credit.metrics["critic/rewards/mean"] == pytest.approx(0.75)


def test_a_critic_is_described() -> None:
    rows = with_numbers(ragged_rows(), "values")

    metrics = assign_credit(rows, CreditConfig(adv_estimator="gae"), None).metrics

    assert metrics["critic/values/max"] <= -2.0
    assert metrics["critic/vf_explained_var"] < 1.0
    assert "critic/values/max" not in assign_credit(ragged_rows(), CreditConfig(), None).metrics


def test_what_is_missing_is_named() -> None:
    penalised = CreditConfig(kl_penalty="kl")
    assert needs_old_logprobs(penalised)
    assert not needs_old_logprobs(CreditConfig())
    with pytest.raises(MissingValues, match="reference_logprobs"):
        assign_credit(ragged_rows(), penalised, torch.zeros(12, 7))
    with pytest.raises(MissingValues, match="values"):
        assign_credit(ragged_rows(), CreditConfig(adv_estimator="gae"), None)
    with pytest.raises(MissingReward):
        assign_credit([make_row("a", 0), make_row("a", 1, reward=None)], CreditConfig(), None)
