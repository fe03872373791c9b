"""What an actor still has to do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.tails import Rest, Tail

PROFILE = DecodeProfile(base_s=0.01, per_sequence_s=1e-3, per_context_token_s=1e-5, prefill_token_s=1e-4)
RESTS = st.lists(st.builds(Rest, tokens=st.floats(1, 500), context=st.floats(0, 500)), min_size=1, max_size=6)


def test_a_tail_takes_the_base_of_its_steps_and_the_share_of_each_token() -> None:
    tail = Tail.of(PROFILE, [Rest(tokens=100, context=50), Rest(tokens=40, context=0)])
    share = 140 * 1e-3 + 1e-5 * (100 * (50 + 50) + 40 * 20)
    assert tail.seconds == pytest.approx(100 * 0.01 + share)
    assert Tail.of(PROFILE, []).seconds == 0.0


def test_one_of_many_lasts_longer_than_each_is_expected_to() -> None:
    rests = [Rest(tokens=100, context=0)] * 3
    longer = Tail.of(PROFILE, rests, longest=250.0).seconds - Tail.of(PROFILE, rests).seconds
    assert longer == pytest.approx(150 * 0.01)


def test_with_few_places_there_are_more_steps() -> None:
    narrow = replace(PROFILE, max_num_sequences=1, per_sequence_s=0.0, per_context_token_s=0.0)
    assert Tail.of(narrow, [Rest(tokens=100, context=0)] * 3).seconds == pytest.approx(300 * 0.01)


def test_what_comes_is_prefilled_and_waited_for_only_where_it_lasts_longer() -> None:
    tail = Tail.of(PROFILE, [Rest(tokens=100, context=0)])
    short = tail.given([Rest(tokens=10, context=200)], 0.0, token_s=1e-3, wait_s=0.5)
    assert short.seconds - tail.seconds == pytest.approx(200 * 1e-3 + 10 * (1e-3 + 1e-5 * 205))
    long = tail.given([Rest(tokens=400, context=0)], 0.0, token_s=1e-3, wait_s=0.5)
    assert long.seconds == pytest.approx(
        Tail.of(PROFILE, [Rest(tokens=100, context=0), Rest(tokens=400, context=0)]).seconds + 0.5
    )
    assert tail.given([], 0.0, token_s=1e-3, wait_s=0.5) == tail


@given(RESTS, RESTS)
def test_one_actor_is_held_for_less_than_two_and_for_longer_than_each(first: list[Rest], second: list[Rest]) -> None:
    one, other = Tail.of(PROFILE, first), Tail.of(PROFILE, second)
    both = one.given(second, 0.0, token_s=0.0, wait_s=0.0)
    assert both.seconds <= (one.seconds + other.seconds) * (1 + 1e-9)
    assert both.seconds >= max(one.seconds, other.seconds) * (1 - 1e-9)
    assert both.seconds == pytest.approx(Tail.of(PROFILE, [*first, *second]).seconds)
