import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.advantage.reinforce_plus_plus import rewards_to_go
from functions.learner.advantage.whitening import whiten
from functions.learner.credit_config import CreditConfig
from tests.unit.functions.learner.builders import credit_inputs, make_row, ragged_rows


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
@given(seed=st.integers(0, 2**32 - 1))
def test_returns_are_the_discounted_rewards_of_the_tokens_that_follow(gamma: float, seed: int) -> None:
    rows = ragged_rows(num_groups=2, seed=seed)
    shape = (len(rows), max(row.num_tokens for row in rows))
    penalties = torch.from_numpy(np.random.default_rng(seed).normal(size=shape))
    inputs = credit_inputs(rows, penalties)

    result = rewards_to_go(inputs, CreditConfig(adv_estimator="reinforce_plus_plus", gamma=gamma))

    expected = torch.zeros(shape, dtype=torch.float64)
    for number, row in enumerate(rows):
        steps = np.flatnonzero(row.loss_mask)
        rewards = -penalties[number].numpy()[steps]
        rewards[-1:] += row.reward
        for t, at in enumerate(steps):
            expected[number, at] = sum(gamma ** (k - t) * rewards[k] for k in range(t, len(steps)))
    torch.testing.assert_close(result.returns, expected.float())
    torch.testing.assert_close(result.advantages, whiten(expected, inputs.trained).float())


def test_the_turn_before_an_inserted_one_sees_the_reward() -> None:
    mask = np.array([True, False, False, True])
    rows = [make_row("a", s, completion=range(4), loss_mask=mask, reward=float(s)) for s in range(2)]

    result = rewards_to_go(credit_inputs(rows), CreditConfig(gamma=0.5))

    assert result.returns.tolist() == [[0.0] * 4, [0.5, 0.0, 0.0, 1.0]]


def test_a_group_of_one_is_compared_with_the_batch() -> None:
    rows = [make_row(uid, completion=(1,), reward=reward) for uid, reward in (("a", 0.0), ("b", 1.0))]

    advantages = rewards_to_go(credit_inputs(rows), CreditConfig()).advantages

    assert advantages[:, 0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_completions_out_of_the_loss_are_out_of_the_whitening_and_have_returns() -> None:
    rows = [make_row("a", s, completion=(1,), reward=r) for s, r in enumerate((0.0, 1.0, 50.0))]
    rows[2] = make_row("a", 2, completion=(1,), reward=50.0, finish_reason="length")

    result = rewards_to_go(credit_inputs(rows, mask_truncated=True), CreditConfig(mask_truncated=True))

    assert result.advantages[:, 0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5, 0.0])
    assert result.returns[:, 0].tolist() == [0.0, 1.0, 50.0]
