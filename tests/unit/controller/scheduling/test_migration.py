"""When an actor is cut short."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.migration import (
    MAX_MOVES,
    ActorProgress,
    MigrationFigures,
    decide_migrations,
    expected_rest,
    keeps_kv,
)

PROFILE = DecodeProfile(base_s=0.02, per_sequence_s=1e-4, per_context_token_s=1e-8, prefill_token_s=1e-5)
TAU = MigrationFigures(end_game=False)
BOTH = MigrationFigures()


def actor(
    shard: int, *tokens: int, done: int = 0, free: int = 0, waiting: int = 0, moves: int = 0, max_tokens: int = 1000
) -> ActorProgress:
    return ActorProgress(
        shard=shard,
        instance=f"i{shard}",
        at=0.0,
        num_assigned=done + len(tokens) + waiting,
        num_done=done,
        num_waiting=waiting,
        running=tuple((f"r{shard}-{n}", n, made) for n, made in enumerate(tokens)),
        free_slots=free,
        tokens_per_s=100.0,
        max_tokens=max_tokens,
        context_tokens=sum(tokens) + 50 * len(tokens),
        most_moves=moves,
    )


STRAGGLER, BUSY = actor(0, 300, 310, done=8), actor(1, *[400] * 6, done=2, free=2)
"""One with a fifth left, and a neighbour that runs longer and has two places."""


def test_the_rest_of_an_actor_that_is_mostly_done_moves_to_free_places() -> None:
    (cut,) = decide_migrations([STRAGGLER, BUSY], PROFILE, TAU)
    assert (cut.shard, cut.reason) == (0, "tau")
    assert cut.saved_s == pytest.approx(310 * 0.02 - TAU.move_s, rel=0.01)


def test_not_before_tau() -> None:
    early = actor(0, 300, 310, 320, done=6)
    assert not decide_migrations([early, replace(BUSY, free_slots=9)], PROFILE, TAU)
    assert decide_migrations([early, replace(BUSY, free_slots=9)], PROFILE, replace(TAU, tau=0.6))


@pytest.mark.parametrize("num", [10, 20, 30, 70, 110])
def test_exactly_at_tau_counts(num: int) -> None:
    done = num * 7 // 10
    at_tau = actor(0, *[300] * (num - done), done=done)
    assert decide_migrations([at_tau, replace(BUSY, free_slots=num)], PROFILE, TAU)


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 900), max_size=5), st.integers(0, 20), st.integers(0, 20)), max_size=5)
)
def test_tau_1_moves_nothing(actors: list[tuple[list[int], int, int]]) -> None:
    progress = [actor(n, *tokens, done=done, free=free) for n, (tokens, done, free) in enumerate(actors)]
    assert decide_migrations(progress, PROFILE, replace(BOTH, tau=1.0)) == ()


def test_without_enough_free_places_it_waits() -> None:
    assert not decide_migrations([STRAGGLER, replace(BUSY, free_slots=1)], PROFILE, BOTH)


def test_idle_actors_are_no_targets() -> None:
    """They are on their way out: moving to one would hold it."""
    idle = actor(1, done=10, free=8)
    assert not decide_migrations([STRAGGLER, idle], PROFILE, BOTH)


def test_no_cut_where_the_neighbour_would_be_held_as_long() -> None:
    """Nothing is saved where the target ends long before what moves."""
    short = actor(1, *[4] * 6, done=2, free=2)
    assert not decide_migrations([STRAGGLER, short], PROFILE, TAU)


def test_no_cut_where_computing_again_costs_more_than_the_base() -> None:
    dear = replace(PROFILE, prefill_token_s=1.0)
    assert not decide_migrations([STRAGGLER, BUSY], dear, BOTH)


def test_a_sequence_moves_a_bounded_number_of_times() -> None:
    travelled = replace(STRAGGLER, most_moves=MAX_MOVES)
    assert [cut.shard for cut in decide_migrations([travelled, BUSY], PROFILE, TAU)] == []
    assert decide_migrations([replace(STRAGGLER, most_moves=MAX_MOVES - 1), BUSY], PROFILE, TAU)


def test_what_is_given_some_is_not_cut_in_the_same_decision() -> None:
    """Either could move to the other; one does."""
    other = actor(1, 320, 330, done=8, free=4)
    cuts = decide_migrations([replace(STRAGGLER, free_slots=4), other], PROFILE, BOTH)
    assert len(cuts) == 1


def test_what_is_cut_already_is_left_alone() -> None:
    assert not decide_migrations([STRAGGLER, BUSY], PROFILE, BOTH, already_cut={0})
    assert not decide_migrations([STRAGGLER, BUSY], PROFILE, BOTH, already_cut={1})


def test_waiting_samples_move_too_and_need_places() -> None:
    waiting = actor(0, 300, done=8, waiting=1)
    assert not decide_migrations([waiting, replace(BUSY, free_slots=1)], PROFILE, TAU)
    assert decide_migrations([waiting, BUSY], PROFILE, TAU)


def test_the_end_game_gathers_the_tail_on_fewer_actors() -> None:
    """None is at tau, and nothing waits: the tail of four ends as soon on fewer."""
    actors = [actor(n, 400, 410 + n, done=2, free=14) for n in range(4)]
    assert not decide_migrations(actors, PROFILE, TAU)
    cuts = decide_migrations(actors, PROFILE, BOTH)
    assert {cut.reason for cut in cuts} == {"end_game"}
    # The first one's two go to the second and the third, which are left alone therefore.
    assert [cut.shard for cut in cuts] == [0, 3]


def test_there_is_no_end_game_while_something_waits_or_where_it_takes_longer() -> None:
    actors = [actor(n, 400, 410 + n, done=2, free=14) for n in range(4)]
    assert not decide_migrations([*actors[:3], replace(actors[3], num_waiting=1)], PROFILE, BOTH)
    crowded = replace(PROFILE, base_s=1e-5, per_sequence_s=1e-2)
    assert not decide_migrations(actors, crowded, BOTH)


def test_on_shared_threads_nothing_moves_that_does_not_end_the_step_sooner() -> None:
    assert not decide_migrations([STRAGGLER, BUSY], PROFILE, replace(BOTH, shared_threads=True))


def test_keys_and_values_move_where_that_is_quicker() -> None:
    known = replace(PROFILE, kv_bytes_per_token=1000)
    assert keeps_kv("auto", known, 2e9)
    assert not keeps_kv("auto", known, 1e7)
    assert not keeps_kv("auto", known, None)
    assert not keeps_kv("auto", PROFILE, 2e9)
    assert keeps_kv("always", PROFILE, None)
    assert not keeps_kv("never", known, 2e12)
    (cut,) = decide_migrations([STRAGGLER, BUSY], known, replace(TAU, bandwidth_bytes_per_s=2e9))
    assert cut.with_kv


def test_the_rest_is_that_of_the_longer_ones_of_its_group_or_as_long_again() -> None:
    known = LengthEstimate(lengths=(100.0, 200.0, 400.0), source="probe")
    assert expected_rest(150, 1000, known) == pytest.approx((50 + 250) / 2)
    assert expected_rest(500, 1000, known) == 500
    assert expected_rest(900, 1000) == 100
    assert expected_rest(0, 1000) == 1


def test_what_is_about_to_end_by_its_group_does_not_move() -> None:
    near_end = {row: LengthEstimate(lengths=(312.0,), source="probe") for row, _, _ in STRAGGLER.running}
    dear = replace(PROFILE, prefill_token_s=1e-3)
    assert decide_migrations([STRAGGLER, BUSY], dear, TAU)
    assert not decide_migrations([STRAGGLER, BUSY], dear, TAU, estimates=near_end)
