"""Rounds of a prefill: every distinct prefix once, never more together than fit, and nothing in common twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.prefill.rounds import plan_rounds
from shared.inference.block_hash import BLOCK_TOKENS

SYSTEM = tuple(range(100, 100 + BLOCK_TOKENS))
PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=6).map(tuple), max_size=20)


def test_distinct_prompts_that_fit_are_one_round_of_whole_prompts() -> None:
    plan = plan_rounds([(1, 2, 3), (1, 2, 3), (1, 5), (1, 2, 9, 9)], 3)
    assert plan.rounds == (((1,), (1, 2), (1, 2, 9)),)
    assert (plan.shared, plan.num_prefixes) == ((), 3)


def test_a_prompts_last_token_and_prompts_of_one_token_need_no_prefill() -> None:
    assert plan_rounds([(7,), (8,)], 4).rounds == ()
    assert plan_rounds([(7, 8)], 4).rounds == (((7,),),)
    assert plan_rounds([], 4).rounds == ()


def test_prompts_that_do_not_fit_one_round_begin_from_what_they_share() -> None:
    prompts = [(*SYSTEM, number, 1, 1) for number in range(7)]
    plan = plan_rounds(prompts, 3)
    # D(L) is 1 up to the system prompt's end, and 7 beyond.
    assert plan.shared == (SYSTEM,)
    assert [len(prefixes) for prefixes in plan.rounds] == [2, 2, 3]
    assert [prefix for prefixes in plan.rounds for prefix in prefixes] == sorted(prompt[:-1] for prompt in prompts)


def test_the_longest_length_with_few_enough_prefixes_is_taken() -> None:
    """Two system prompts, three questions each: D is 2 up to their end, 6 beyond; one more splits the first earlier."""
    other = (*SYSTEM[:-1], 0)
    prompts = [(*system, number, 1) for system in (SYSTEM, other) for number in range(3)]
    assert plan_rounds(prompts, 2).shared == tuple(sorted([SYSTEM, other]))
    assert plan_rounds(prompts, 5).shared == tuple(sorted([SYSTEM, other]))
    # One prefix alone fits only up to where they part, which is less than a block: not worth a pass.
    assert plan_rounds(prompts, 1).shared == ()


@given(PROMPTS, st.integers(1, 5))
def test_every_distinct_prefix_is_in_exactly_one_round_that_fits(prompts: list[tuple[int, ...]], most: int) -> None:
    plan = plan_rounds(prompts, most)
    prefixes = [prefix for prefixes in plan.rounds for prefix in prefixes]
    assert sorted(prefixes) == sorted({prompt[:-1] for prompt in prompts if len(prompt) > 1})
    assert all(0 < len(round) <= most for round in plan.rounds)


@pytest.mark.parametrize("most", [1, 2, 3, 50])
def test_the_plan_does_not_depend_on_the_order_of_the_prompts(most: int) -> None:
    prompts = [(*SYSTEM, number % 5, number) for number in range(12)]
    assert plan_rounds(prompts, most) == plan_rounds(prompts[::-1], most)
