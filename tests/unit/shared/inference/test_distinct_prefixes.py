"""Distinct prefixes of prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.inference.distinct_prefixes import find_distinct, prefill_rounds

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


def brute(prompts: list[list[int]], length: int) -> int:
    return len({tuple(prompt[:length]) for prompt in prompts})


def test_the_number_of_prefixes_grows_with_their_length() -> None:
    """The published remark that it falls is wrong: aX and aY."""
    found = find_distinct([[1, 2], [1, 3]])
    assert (found.num_distinct(1), found.num_distinct(2)) == (1, 2)


@given(PROMPTS)
def test_counts_are_those_of_counting(prompts: list[list[int]]) -> None:
    found = find_distinct(prompts)
    counts = [found.num_distinct(length) for length in range(1, 10)]
    assert counts == [brute(prompts, length) for length in range(1, 10)]
    assert counts == sorted(counts)
    for length in range(1, 9):
        assert len(found.cut_at(length)) == brute(prompts, length)


@given(PROMPTS, st.integers(1, 12))
def test_the_length_is_the_largest_that_fits(prompts: list[list[int]], budget: int) -> None:
    longest = max(map(len, prompts))
    fitting = [length for length in range(1, longest + 1) if brute(prompts, length) <= budget]
    assert find_distinct(prompts).longest_within(budget) == max(fitting, default=0)


@given(PROMPTS)
def test_a_common_beginning_is_computed_once(prompts: list[list[int]]) -> None:
    nodes = {tuple(prompt[:length]) for prompt in prompts for length in range(1, len(prompt) + 1)}
    assert find_distinct(prompts).num_tree_tokens == len(nodes)


def test_equal_prompts_are_one() -> None:
    found = find_distinct([[5, 6, 7]] * 3)
    assert found.prompts == ((5, 6, 7),)
    assert (found.num_unique_tokens, found.num_tree_tokens, found.longest_within(1)) == (3, 3, 3)


def test_no_prompts_are_no_prefixes() -> None:
    found = find_distinct([])
    assert (found.num_distinct(3), found.longest_within(4), found.cut_at(3), found.num_tree_tokens) == (0, 0, (), 0)
    assert prefill_rounds((), 4) == ()


@pytest.mark.parametrize(
    ("num", "budget", "sizes"), [(7, 3, [2, 2, 3]), (6, 3, [3, 3]), (2, 9, [2]), (3, 0, [1, 1, 1])]
)
def test_rounds_are_few_and_even(num: int, budget: int, sizes: list[int]) -> None:
    prefixes = tuple((number,) for number in range(num))
    rounds = prefill_rounds(prefixes, budget)
    assert [len(one) for one in rounds] == sizes
    assert tuple(prefix for one in rounds for prefix in one) == prefixes
