import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.advantage import ADVANTAGE_ESTIMATORS
from functions.learner.advantage.group_relative import group_relative_advantages, relative_rewards
from functions.learner.credit_config import CreditConfig
from functions.learner.errors import GroupTooSmall
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import credit_inputs, make_row, ragged_rows

REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=9)


@given(REWARDS)
def test_agrees_with_numpy(rewards: list[float]) -> None:
    expected = (rewards - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-6)

    assert relative_rewards(rewards, by_std=True) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(REWARDS)
def test_without_std_only_the_mean_is_taken_off(rewards: list[float]) -> None:
    assert relative_rewards(rewards, by_std=False) == pytest.approx(rewards - np.mean(rewards), abs=1e-9)


@given(st.floats(-1e6, 1e6), st.integers(2, 9))
def test_equal_rewards_give_exactly_zero(reward: float, group_size: int) -> None:
    assert relative_rewards([reward] * group_size, by_std=True) == [0.0] * group_size


def test_a_tiny_difference_is_not_swallowed_by_a_floor() -> None:
    """A variance floor of 1e-6 in its place gives ±.005."""
    low, high = relative_rewards([1.0, 1.00001], by_std=True)

    assert (low, high) == pytest.approx((-0.6195, 0.6195), abs=2e-4)


def test_every_trained_token_of_a_completion_gets_its_value_and_no_other() -> None:
    rows = [
        make_row("a", 0, completion=(1, 2, 3), loss_mask=np.array([True, False, True]), reward=3.0),
        make_row("a", 1, completion=(1,), reward=1.0),
    ]

    advantages = group_relative_advantages(credit_inputs(rows), CreditConfig()).advantages

    value = 1.0 / (2.0**0.5 + 1e-6)
    assert advantages.dtype == torch.float32
    assert advantages.tolist() == [pytest.approx([value, 0.0, value]), pytest.approx([-value, 0.0, 0.0])]


def test_the_config_switches_the_division() -> None:
    rows = [make_row("a", 0, reward=3.0), make_row("a", 1, reward=1.0)]

    advantages = group_relative_advantages(credit_inputs(rows), CreditConfig(norm_adv_by_std=False)).advantages

    assert advantages[:, 0].tolist() == [1.0, -1.0]


def test_groups_do_not_see_each_other_even_with_one_prompt() -> None:
    rows = [
        make_row(uid, s, prompt=(7,), reward=r)
        for uid, rs in (("a", (0, 1)), ("b", (10, 30)))
        for s, r in enumerate(rs)
    ]

    advantages = group_relative_advantages(credit_inputs(rows), CreditConfig(norm_adv_by_std=False)).advantages

    assert advantages[:, 0].tolist() == [-0.5, 0.5, -10.0, 10.0]


@given(st.integers(0, 2**32))
def test_the_order_of_arrival_does_not_matter(seed: int) -> None:
    rows = ragged_rows()
    arrived = rows.copy()
    random.Random(seed).shuffle(arrived)

    ours, theirs = (
        group_relative_advantages(credit_inputs(sort_rows(batch)), CreditConfig()) for batch in (arrived, rows)
    )

    assert torch.equal(ours.advantages, theirs.advantages)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(GroupTooSmall, match="'b'"):
        group_relative_advantages(credit_inputs([make_row("a", 0), make_row("a", 1), make_row("b", 0)]), CreditConfig())


def test_the_config_name_leads_here() -> None:
    assert ADVANTAGE_ESTIMATORS["grpo"] is group_relative_advantages
