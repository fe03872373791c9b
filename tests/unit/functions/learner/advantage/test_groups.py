import pytest

from functions.learner.advantage.groups import flat_groups, require_rewards, rows_by_group, zero_std_groups
from functions.learner.errors import MissingReward
from tests.unit.functions.learner.builders import make_row


def test_equal_prompts_of_two_rows_are_two_groups() -> None:
    rows = [make_row(uid, sample, prompt=(5, 6)) for uid in ("a", "b") for sample in (0, 1)]

    assert rows_by_group(rows) == {("a", 0): [0, 1], ("b", 0): [2, 3]}


def test_rounds_of_one_row_are_two_groups() -> None:
    rows = [make_row("a", sample, round=round_) for round_ in (0, 1) for sample in (0, 1)]

    assert rows_by_group(rows) == {("a", 0): [0, 1], ("a", 1): [2, 3]}


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf")])
def test_a_failed_reward_is_refused_and_names_the_completion(reward: float | None) -> None:
    with pytest.raises(MissingReward, match=r"'b', round 0, sample 3"):
        require_rewards([make_row("a", reward=1.0), make_row("b", 3, reward=reward)])


def test_zero_is_a_reward() -> None:
    assert require_rewards([make_row(reward=0.0)]) == [0.0]


def test_groups_without_spread_are_found() -> None:
    rewards = {"a": (0.1, 0.1, 0.1), "b": (0.1, 0.1, 0.2), "c": (0.0, 0.0, 0.0)}
    rows = [make_row(uid, sample, reward=reward) for uid, r in rewards.items() for sample, reward in enumerate(r)]

    assert zero_std_groups(rows) == {("a", 0), ("c", 0)}


@pytest.mark.parametrize(("is_flat", "flat"), [(None, {("b", 0)}), (True, {("a", 0), ("b", 0)}), (False, {("b", 0)})])
def test_what_is_said_of_a_group_counts_more_than_its_rewards(is_flat: bool | None, flat: set[tuple[str, int]]) -> None:
    rows = [make_row("a", sample, reward=sample / 10, group_is_flat=is_flat) for sample in range(2)]
    rows += [make_row("b", sample, reward=1.0) for sample in range(2)]

    assert flat_groups(rows) == flat
    assert zero_std_groups(rows) == {("b", 0)}


def test_a_group_of_equal_rewards_may_be_said_to_differ() -> None:
    assert not flat_groups([make_row("a", sample, reward=1.0, group_is_flat=False) for sample in range(2)])


def test_lengths_make_no_difference_between_completions_that_are_all_right() -> None:
    rows = [make_row("a", sample, completion=range(1 + sample), reward=1.0) for sample in range(3)]

    assert zero_std_groups(rows) == {("a", 0)}
