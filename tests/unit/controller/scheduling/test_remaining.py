"""How many tokens a running sequence still needs."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.remaining import LEAST_INDEX, UNKNOWN, Remaining, remaining

MOST = 4096


def history(*lengths: float) -> LengthEstimate:
    return LengthEstimate(lengths=tuple(sorted(lengths)), source="history")


def rest(found: Remaining, row: str, tokens: int, most: int = MOST) -> float:
    return float(found.tokens([row], [tokens], most)[0])


def test_of_an_unknown_row_as_much_again_is_expected() -> None:
    assert rest(UNKNOWN, "a", 300) == pytest.approx(300)
    assert rest(remaining({"b": history(10, 20)}), "a", 300) > 100
    assert rest(UNKNOWN, "a", 0) >= 1.0


def test_at_most_what_is_left_of_the_tokens_and_at_least_one() -> None:
    assert rest(UNKNOWN, "a", 900, most=1000) == 100
    assert rest(UNKNOWN, "a", 1000, most=1000) == 1.0


def test_with_nothing_seen_it_is_the_mean_of_the_expected_ones_that_are_longer() -> None:
    """Kaplan and Meier's product without censoring is the share that is longer."""
    found = remaining({"a": history(*range(10, 210, 10))})
    assert found.centres == {"a": 105.0}
    # The tenth that is the longest is the tail; up to there the integral of the shares.
    shares = {length: 1 - place / 20 for place, length in enumerate(range(10, 210, 10), start=1)}
    by_hand = sum(10 * shares[length] for length in range(50, 180, 10)) + 0.1 * 180 / (found.tail_index - 1)
    assert rest(found, "a", 50) == pytest.approx(by_hand / shares[50])


def test_running_samples_count_as_at_least_as_long() -> None:
    """Four of eight have ended: alone they say that all are short."""
    prior = {"a": history(100, 100)}
    blind, seen = (
        remaining(prior, {"a": (90, 95, 100, 105)}),
        remaining(prior, {"a": (90, 95, 100, 105)}, {"a": (300,) * 4}),
    )
    assert rest(seen, "a", 120) > rest(blind, "a", 120)
    assert seen.centres["a"] > blind.centres["a"]


def test_what_outlasts_everything_is_expected_to_go_on() -> None:
    estimates = {row: history(90, 100, 110) for row in "ab"}
    finished = dict.fromkeys("ab", (90, 95, 100, 105, 110))
    found = remaining(estimates, finished, {"a": (400,), "b": (20,)})
    assert rest(found, "a", 400) > 100


def test_the_tail_is_as_long_as_the_batch_shows() -> None:
    """Hill's index: a batch whose long ones end soon after each other has short rests."""
    estimates = {f"r{n}": history(100.0) for n in range(40)}
    light = {row: (100 + number,) for number, row in enumerate(estimates)}
    heavy = {row: (100 + number**2,) for number, row in enumerate(estimates)}
    assert remaining(estimates, light).tail_index > remaining(estimates, heavy).tail_index >= LEAST_INDEX
    assert rest(remaining(estimates, light), "r0", 600) < rest(remaining(estimates, heavy), "r0", 600)


def test_rows_share_a_distribution_up_to_their_scale() -> None:
    found = remaining({"short": history(8, 10, 12), "long": history(80, 100, 120)})
    assert rest(found, "long", 90) == pytest.approx(10 * rest(found, "short", 9))


def drawn(seed: int, at: int) -> tuple[Remaining, list[str], list[int]]:
    """Groups of log-normal lengths, seen after so many tokens: what to expect, and what the running ones need."""
    noise = np.random.default_rng(seed)
    centres = 200 * np.exp(noise.normal(0, 0.5, 40))
    lengths = {
        f"r{n}": (centre * np.exp(noise.normal(0, 0.3, 8))).round().astype(int) for n, centre in enumerate(centres)
    }
    estimates = {f"r{n}": history(*(centre * np.exp(noise.normal(0, 0.3, 8)))) for n, centre in enumerate(centres)}
    found = remaining(
        estimates,
        {row: [int(one) for one in of if one <= at] for row, of in lengths.items()},
        {row: [at] * int((of > at).sum()) for row, of in lengths.items()},
    )
    left = [(row, int(one) - at) for row, of in lengths.items() for one in of if one > at]
    return found, [row for row, _ in left], [rest for _, rest in left]


@pytest.mark.parametrize("at", [100, 200, 300, 400])
def test_the_mean_rest_is_about_right_at_any_time(at: int) -> None:
    expected, true = [], []
    for seed in range(6):
        found, rows, left = drawn(seed, at)
        expected += found.tokens(rows, [at] * len(rows), MOST).tolist()
        true += left
    assert np.mean(expected) == pytest.approx(np.mean(true), rel=0.2)


@pytest.mark.parametrize("at", [1, 100, 300])
def test_the_longest_rest_is_that_of_the_last_one(at: int) -> None:
    ratios = []
    for seed in range(8):
        found, rows, left = drawn(seed, at)
        ratios.append(max(left) / found.longest(rows, [at] * len(rows), MOST))
    assert np.median(ratios) == pytest.approx(1.0, abs=0.3)


def test_the_longest_of_one_is_its_own_and_of_none_nothing() -> None:
    found = remaining({"a": history(90, 100, 110)})
    assert found.longest(["a"], [50], MOST) >= rest(found, "a", 50)
    assert found.longest([], [], MOST) == 0.0


COUNTS = st.lists(st.integers(0, 2000), max_size=4)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.floats(1, 2000), min_size=2, max_size=2), max_size=4),
    st.dictionaries(st.sampled_from("abcde"), COUNTS),
    st.dictionaries(st.sampled_from("abcde"), COUNTS),
)
def test_whatever_is_seen_a_rest_is_within_bounds(
    expected: dict[str, list[float]], finished: dict[str, list[int]], reached: dict[str, list[int]]
) -> None:
    found = remaining({row: history(*lengths) for row, lengths in expected.items()}, finished, reached)
    asked: Sequence[tuple[str, int]] = list(itertools.product("abcde", (0, 7, 500, 1999)))
    rests = found.tokens([row for row, _ in asked], [count for _, count in asked], 2000).tolist()
    for (_, count), one in zip(asked, rests, strict=True):
        assert math.isfinite(one)
        assert 1.0 <= one <= max(1.0, 2000 - count)
    longest = found.longest([row for row, _ in asked], [count for _, count in asked], 2000)
    assert max(rests) <= longest <= 2000
