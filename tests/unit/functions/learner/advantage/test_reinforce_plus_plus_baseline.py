import numpy as np
import pytest
import torch

from functions.learner.advantage.reinforce_plus_plus_baseline import whitened_group_advantages
from functions.learner.credit_config import CreditConfig
from tests.unit.functions.learner.builders import credit_inputs, make_row, ragged_rows


def test_group_deviations_are_whitened_over_the_tokens_of_the_batch() -> None:
    rows = ragged_rows()
    inputs = credit_inputs(rows)
    rewards = np.array([row.reward for row in rows]).reshape(4, 3)
    deviations = (rewards - rewards.mean(1, keepdims=True)).flatten()
    per_token = np.concatenate([np.full(row.loss_mask.sum(), d) for row, d in zip(rows, deviations, strict=True)])

    result = whitened_group_advantages(inputs, CreditConfig(adv_estimator="reinforce_plus_plus_baseline"))

    expected = (per_token - per_token.mean()) / np.sqrt(per_token.var(ddof=1) + 1e-8)
    assert result.advantages[inputs.trained].numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert not result.advantages[~inputs.trained].any()


def test_groups_without_spread_give_exactly_zero() -> None:
    rows = [make_row(uid, s, reward=reward) for uid, reward in (("a", 0.1), ("b", 7.0)) for s in range(3)]

    assert not whitened_group_advantages(credit_inputs(rows), CreditConfig()).advantages.any()


def test_a_nearly_solved_group_is_not_blown_up() -> None:
    close = [make_row("a", s, completion=(1,), reward=r) for s, r in enumerate((1.0, 1.0, 0.99))]
    wide = [make_row("b", s, completion=(1,), reward=r) for s, r in enumerate((1.0, 0.0, 0.5))]

    advantages = whitened_group_advantages(credit_inputs(close + wide), CreditConfig()).advantages

    assert advantages[:3].abs().max() < 0.05 < 1.0 < advantages[3:].abs().max()
    torch.testing.assert_close(advantages.sum(), torch.tensor(0.0))
