"""Estimates from n samples, against an enumeration of every draw."""

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.runs.eval_metrics import (
    EvaluatedRow,
    Sampled,
    best_of_k,
    evaluation_metrics,
    majority_reward,
    numbers_of_samples,
    pass_at_k,
)

REWARDS = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0, 1.5]), min_size=1, max_size=7)
ANSWERS = st.sampled_from(["3", "4", "5", None])
SAMPLES = st.lists(st.builds(Sampled, reward=st.sampled_from([0.0, 1.0]), answer=ANSWERS), min_size=1, max_size=6)


def row(*rewards: float, source: str = "", answers: str = "") -> EvaluatedRow:
    """One row; an answer per sample, ``-`` for none."""
    read = [None if answer == "-" else answer for answer in answers or "-" * len(rewards)]
    samples = tuple(Sampled(reward=reward, answer=answer) for reward, answer in zip(rewards, read, strict=True))
    return EvaluatedRow(data_source=source, samples=samples)


@given(REWARDS, st.data())
@settings(max_examples=60, deadline=None)
def test_pass_and_best_are_the_mean_over_all_draws(rewards: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(rewards)))
    draws = list(combinations(rewards, k))
    solved = sum(reward >= 1 for reward in rewards)
    assert pass_at_k(len(rewards), solved, k) == pytest.approx(sum(max(draw) >= 1 for draw in draws) / len(draws))
    assert best_of_k(rewards, k) == pytest.approx(sum(map(max, draws)) / len(draws))


@given(REWARDS)
@settings(max_examples=30, deadline=None)
def test_more_draws_never_do_worse_and_all_of_them_have_the_best(rewards: list[float]) -> None:
    n = len(rewards)
    best = [best_of_k(rewards, k) for k in range(1, n + 1)]
    assert best[0] == pytest.approx(sum(rewards) / n)
    assert best[-1] == max(rewards)
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(best))


def test_pass_at_k_of_the_paper() -> None:
    assert pass_at_k(10, 0, 5) == 0.0
    assert pass_at_k(10, 6, 5) == 1.0
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    # The biased 1 - (1 - c/n)^k would be 0.4375.
    assert pass_at_k(200, 7, 100) == pytest.approx(0.993, abs=1e-3)


@given(SAMPLES)
@settings(max_examples=100, deadline=None)
def test_a_majority_is_what_counting_finds(samples: list[Sampled]) -> None:
    votes = Counter(sample.answer for sample in samples if sample.answer is not None)
    if votes:
        winners = [answer for answer, count in votes.items() if count == max(votes.values())]
        worth = [[s.reward for s in samples if s.answer == answer] for answer in winners]
        expected = sum(sum(rewards) / len(rewards) for rewards in worth) / len(worth)
    else:
        expected = sum(sample.reward for sample in samples) / len(samples)
    assert majority_reward(samples) == pytest.approx(expected)
    assert majority_reward(samples[::-1]) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "numbers"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (7, [1, 2, 4, 7])])
def test_draws_are_powers_of_two_up_to_all(n: int, numbers: list[int]) -> None:
    assert numbers_of_samples(n) == numbers


def test_names_are_verls_by_source_and_over_all() -> None:
    rows = [row(1, 0, 1, 0, source="math"), row(0, 0, 0, 0, source="math"), row(1, 1, 1, 1)]
    metrics = evaluation_metrics(rows, success_reward=1.0)
    assert metrics["val-core/reward/mean@4"] == pytest.approx(0.5)
    assert metrics["val-core/math/reward/mean@4"] == pytest.approx(0.25)
    assert metrics["val-core/unknown/reward/mean@4"] == 1.0
    assert metrics["val-core/math/reward/pass@1"] == pytest.approx(0.25)
    assert metrics["val-core/math/reward/pass@2"] == pytest.approx(5 / 12)
    assert metrics["val-core/math/reward/pass@4"] == pytest.approx(0.5)
    assert metrics["val-aux/math/reward/best@2/mean"] == pytest.approx(5 / 12)
    assert metrics["val-core/math/reward/best@4/mean"] == pytest.approx(0.5)
    assert not [name for name in metrics if "maj" in name], "no answer was read"
    assert {name.split("/")[0] for name in metrics} == {"val-core", "val-aux"}


def test_answers_make_a_majority_of_their_source() -> None:
    rows = [row(1, 0, 1, source="a", answers="737"), row(0, 1, 0, source="a", answers="272"), row(1, 0, 0, source="b")]
    metrics = evaluation_metrics(rows, success_reward=1.0)
    assert metrics["val-core/a/reward/maj@3/mean"] == pytest.approx(0.5)
    assert "val-core/b/reward/maj@3/mean" not in metrics


def test_what_counts_as_solved_is_said() -> None:
    assert evaluation_metrics([row(0.8)], success_reward=1.0)["val-core/reward/pass@1"] == 0
    assert evaluation_metrics([row(0.8)], success_reward=0.8)["val-core/reward/pass@1"] == 1


def test_without_rows_there_is_nothing_to_say() -> None:
    assert evaluation_metrics([], success_reward=1.0) == {}
