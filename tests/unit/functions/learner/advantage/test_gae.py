"""Generalized advantages against the double sum of their definition."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.advantage.gae import generalized_advantages
from functions.learner.advantage.whitening import whiten
from functions.learner.credit_config import CreditConfig
from functions.learner.errors import MissingValues
from functions.learner.rows import TrainRow
from tests.unit.functions.learner.builders import credit_inputs, make_row, ragged_rows

SEEDS = st.integers(0, 2**32 - 1)


def batch(seed: int) -> tuple[list[TrainRow], torch.Tensor, torch.Tensor]:
    """Ragged rows with masks, values and penalties of a token at random [B, T]."""
    rng = np.random.default_rng(seed)
    rows = ragged_rows(num_groups=2, seed=seed)
    shape = (len(rows), max(row.num_tokens for row in rows))
    return rows, torch.from_numpy(rng.normal(size=shape)).float(), torch.from_numpy(rng.normal(size=shape))


def direct(row: TrainRow, values: list[float], penalties: list[float], gamma: float, lam: float) -> list[float]:
    """Advantage of each sampled token by the sum over all later ones, tokens that were inserted taken out first."""
    steps = np.flatnonzero(row.loss_mask)
    rewards = [-penalties[at] for at in steps]
    assert row.reward is not None
    if rewards:
        rewards[-1] += row.reward
    said = [values[at] for at in steps] + [0.0]
    deltas = [reward + gamma * said[at + 1] - said[at] for at, reward in enumerate(rewards)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.5), (0.99, 0.0), (0.0, 1.0)])
@given(seed=SEEDS)
def test_agrees_with_the_double_sum(gamma: float, lam: float, seed: int) -> None:
    rows, values, penalties = batch(seed)
    inputs = credit_inputs(rows, penalties, values)

    result = generalized_advantages(inputs, CreditConfig(adv_estimator="gae", gamma=gamma, lam=lam))

    expected = torch.zeros(values.shape, dtype=torch.float64)
    for number, row in enumerate(rows):
        sums = direct(row, values[number].tolist(), penalties[number].tolist(), gamma, lam)
        expected[number, torch.from_numpy(np.flatnonzero(row.loss_mask))] = torch.tensor(sums, dtype=torch.float64)
    returns = torch.where(inputs.sampled, expected + values.double(), 0.0)
    torch.testing.assert_close(result.returns, returns.float())
    torch.testing.assert_close(result.advantages, whiten(expected, inputs.sampled).float())


@given(seed=SEEDS)
def test_with_all_of_gamma_and_lambda_the_return_is_the_reward_to_come(seed: int) -> None:
    rows, values, _ = batch(seed)
    inputs = credit_inputs(rows, values=values)

    returns = generalized_advantages(inputs, CreditConfig(adv_estimator="gae")).returns

    rewards = torch.tensor([row.reward for row in rows])[:, None].expand(returns.shape)
    torch.testing.assert_close(returns[inputs.sampled], rewards[inputs.sampled], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("garbage", [1e6, float("inf"), float("nan")])
def test_values_that_are_no_states_of_the_policy_change_nothing(garbage: float) -> None:
    """Behind the last action, at inserted tokens, in the padding."""
    rows, values, penalties = batch(0)
    config = CreditConfig(adv_estimator="gae", lam=0.9)
    clean = credit_inputs(rows, penalties, values)
    dirty = credit_inputs(
        rows, torch.where(clean.sampled, penalties, garbage), torch.where(clean.sampled, values, garbage)
    )

    expected, result = (generalized_advantages(inputs, config) for inputs in (clean, dirty))

    assert torch.equal(result.advantages, expected.advantages)
    assert torch.equal(result.returns, expected.returns)


def test_a_completion_that_was_cut_ends_like_any_other() -> None:
    rows = [make_row("a", s, reward=1.0, finish_reason=reason) for s, reason in enumerate(("stop", "length"))]
    inputs = credit_inputs(rows, values=[[0.3, 0.6]] * 2)

    returns = generalized_advantages(inputs, CreditConfig(adv_estimator="gae", gamma=0.5, lam=0.0)).returns

    assert returns.tolist() == [pytest.approx([0.3, 1.0])] * 2


def test_a_lone_completion_has_advantages_too() -> None:
    inputs = credit_inputs([make_row(reward=1.0)], values=[[0.0, 0.5]])

    advantages = generalized_advantages(inputs, CreditConfig(adv_estimator="gae", lam=0.0)).advantages

    assert advantages.tolist() == [[0.0, 0.0]]
    assert generalized_advantages(inputs, CreditConfig(adv_estimator="gae")).advantages[0].tolist() == pytest.approx(
        [2**-0.5, -(2**-0.5)]
    )


def test_without_a_critic_it_is_refused_by_name() -> None:
    with pytest.raises(MissingValues, match="values: gae needs"):
        generalized_advantages(credit_inputs([make_row()]), CreditConfig(adv_estimator="gae"))
