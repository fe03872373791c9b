import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.advantage import ADVANTAGE_ESTIMATORS
from functions.learner.advantage.leave_one_out import leave_one_out, leave_one_out_advantages
from functions.learner.credit_config import CreditConfig
from functions.learner.errors import GroupTooSmall
from tests.unit.functions.learner.builders import credit_inputs, make_row


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_the_baseline_is_the_mean_of_the_others(rewards: list[float]) -> None:
    expected = [reward - np.mean(rewards[:at] + rewards[at + 1 :]) for at, reward in enumerate(rewards)]

    assert leave_one_out(rewards) == pytest.approx(expected, abs=1e-9)


@given(st.floats(-1e6, 1e6), st.integers(2, 9))
def test_equal_rewards_give_exactly_zero(reward: float, group_size: int) -> None:
    assert leave_one_out([reward] * group_size) == [0.0] * group_size


def test_every_trained_token_of_a_completion_gets_its_value_and_no_other() -> None:
    rows = [
        make_row("a", 0, completion=(1, 2, 3), loss_mask=np.array([True, False, True]), reward=3.0),
        make_row("a", 1, completion=(1,), reward=1.0),
    ]

    result = leave_one_out_advantages(credit_inputs(rows), CreditConfig(adv_estimator="rloo"))

    assert result.advantages.tolist() == [[2.0, 0.0, 2.0], [-2.0, 0.0, 0.0]]


def test_penalties_of_tokens_count_in_a_completions_reward() -> None:
    rows = [make_row("a", s, reward=1.0, loss_mask=np.array([True, False])) for s in range(2)]

    result = leave_one_out_advantages(credit_inputs(rows, [[0.25, 99.0], [0.0, 99.0]]), CreditConfig())

    assert result.advantages[:, 0].tolist() == [-0.25, 0.25]


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce_plus_plus_baseline"])
def test_a_group_of_one_is_refused(estimator: str) -> None:
    rows = [make_row("a", 0), make_row("a", 1), make_row("b", 0)]
    with pytest.raises(GroupTooSmall, match="'b'"):
        ADVANTAGE_ESTIMATORS[estimator](credit_inputs(rows), CreditConfig(adv_estimator=estimator))
