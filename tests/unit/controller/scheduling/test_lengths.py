"""Expected lengths of the completions of a prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.lengths import LengthEstimate, LengthRecord, default_length, estimate, resample

GROUPS = st.lists(st.integers(1, 500), min_size=4, max_size=4).map(lambda lengths: tuple(sorted(lengths)))


def records(*epochs: tuple[int, ...]) -> list[LengthRecord]:
    return [LengthRecord(row_uid="r", epoch=number, lengths=lengths) for number, lengths in enumerate(epochs)]


@given(GROUPS, GROUPS)
def test_a_window_of_one_is_the_last_epoch(first: tuple[int, ...], last: tuple[int, ...]) -> None:
    found = estimate(records(first, last), answer_tokens=7, group_size=4, default=9)
    assert found == LengthEstimate(lengths=tuple(map(float, last)), source="history")


def test_a_longer_window_is_an_exponentially_weighted_mean_rank_by_rank() -> None:
    """W = 3 has alpha = 1/2."""
    seen = records((1000, 1000), (10, 20), (30, 40), (50, 80))
    found = estimate(seen, answer_tokens=None, group_size=2, default=9, window=3)
    assert found.lengths == (0.5 * 50 + 0.5 * (0.5 * 30 + 0.5 * 10), 0.5 * 80 + 0.5 * (0.5 * 40 + 0.5 * 20))


def test_the_first_epoch_goes_by_the_answer_and_else_by_the_default() -> None:
    by_answer = estimate([], answer_tokens=12, group_size=3, default=9)
    assert by_answer == LengthEstimate(lengths=(12.0,) * 3, source="answer")
    assert estimate([], answer_tokens=None, group_size=3, default=9) == LengthEstimate(
        lengths=(9.0,) * 3, source="default"
    )
    assert estimate([], answer_tokens=0, group_size=1, default=9).max == 1.0


def test_an_unknown_row_is_expected_to_be_like_the_others() -> None:
    assert default_length([10, 30, 500], max_tokens=1000) == 30
    assert default_length([], max_tokens=1000) == 1000


def test_a_group_keeps_its_mean_its_longest_and_its_quantiles() -> None:
    found = LengthEstimate(lengths=(10.0, 20.0, 30.0, 100.0), source="history")
    assert (found.mean, found.max) == (40.0, 100.0)
    assert [found.quantile(q) for q in (0, 0.5, 0.9, 1)] == pytest.approx([10, 25, 79, 100])


@given(st.lists(st.integers(1, 500), min_size=1, max_size=9).map(sorted), st.integers(1, 12))
def test_another_group_size_keeps_the_distribution(lengths: list[int], size: int) -> None:
    found = resample(lengths, size)
    assert len(found) == size
    assert list(found) == sorted(found)
    assert lengths[0] <= found[0] <= found[-1] <= lengths[-1]
    if size == len(lengths):
        assert list(found) == lengths


def test_half_a_group_is_the_middle_of_each_half() -> None:
    assert resample((10, 20, 30, 40), 2) == (15.0, 35.0)
    assert resample((10, 20), 4) == pytest.approx((10.0, 12.5, 17.5, 20.0), abs=1e-9)
