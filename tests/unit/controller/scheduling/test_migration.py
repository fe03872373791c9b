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
    keeps_kv,
)
from controller.scheduling.remaining import Remaining, remaining

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
    assert cut.saved_s == pytest.approx(310 * 0.02 - TAU.release_s, rel=0.02)


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
    assert [(cut.shard, cut.takers) for cut in cuts] == [(shard, ((3, 2),)) for shard in range(3)]


def test_there_is_no_end_game_while_something_waits_or_where_it_takes_longer() -> None:
    actors = [actor(n, 400, 410 + n, done=2, free=14) for n in range(4)]
    assert not decide_migrations([*actors[:3], replace(actors[3], num_waiting=1)], PROFILE, BOTH)
    crowded = replace(PROFILE, base_s=1e-5, per_sequence_s=1e-2)
    assert not decide_migrations(actors, crowded, BOTH)


def test_on_shared_threads_nothing_moves_that_lengthens_the_step() -> None:
    """Elsewhere a cheaper step may take a little longer; there it may not."""
    slower = replace(PROFILE, per_sequence_s=2e-3)
    assert decide_migrations([STRAGGLER, BUSY], slower, TAU)
    assert not decide_migrations([STRAGGLER, BUSY], slower, replace(TAU, shared_threads=True))
    assert decide_migrations([STRAGGLER, BUSY], PROFILE, replace(TAU, shared_threads=True))


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


def near_end(actor: ActorProgress) -> Remaining:
    """All others of its rows have ended just beyond where they are."""
    rows = [row for row, _, _ in actor.running]
    estimates = {row: LengthEstimate(lengths=(312.0,), source="history") for row in rows}
    return remaining(estimates, dict.fromkeys(rows, (312,) * 20))


def test_what_is_about_to_end_does_not_move() -> None:
    assert decide_migrations([STRAGGLER, BUSY], PROFILE, TAU)
    assert not decide_migrations([STRAGGLER, BUSY], PROFILE, TAU, remaining=near_end(STRAGGLER))


def group(shard: int, outlier: int) -> ActorProgress:
    """Seven of eight have ended at about a hundred tokens."""
    return replace(actor(shard, outlier, done=7, free=16, max_tokens=2000), context_tokens=outlier + 50)


def test_one_that_outlasts_its_group_is_not_taken_to_end_at_once() -> None:
    """One of each of two groups goes on: nobody knows for how long, and one actor can do both."""
    actors = [group(0, 400), group(1, 410)]
    estimates = {f"r{n}-0": LengthEstimate(lengths=(90.0,) * 4 + (110.0,) * 4, source="history") for n in range(2)}
    finished = dict.fromkeys(estimates, (90, 95, 100, 100, 105, 110, 115))
    reached = {"r0-0": (400,), "r1-0": (410,)}
    found = remaining(estimates, finished, reached)
    for figures in (TAU, BOTH, replace(BOTH, shared_threads=True)):
        (cut,) = decide_migrations(actors, PROFILE, figures, remaining=found)
        assert cut.takers == ((1, 1),)


def test_the_rest_goes_to_the_actor_that_is_there_the_longest() -> None:
    """Wherever the most places are: whoever has something to do anyway costs least."""
    short, long = actor(1, 100, done=2, free=40), actor(2, 450, 460, done=2, free=4)
    (cut,) = decide_migrations([STRAGGLER, short, long], PROFILE, TAU)
    assert cut.takers == ((2, 2),)


def test_several_take_what_none_has_room_for() -> None:
    targets = [actor(n, *[400 + n] * 6, done=2, free=1) for n in (1, 2)]
    (cut,) = decide_migrations([STRAGGLER, *targets], PROFILE, TAU)
    assert sorted(cut.takers) == [(1, 1), (2, 1)]


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 900), max_size=5), st.integers(0, 20), st.integers(0, 9)), max_size=6),
    st.sampled_from([TAU, BOTH, replace(BOTH, shared_threads=True), replace(BOTH, lambda_=0.0, tau=0.1)]),
)
def test_what_is_cut_has_takers_that_stay_and_have_room(
    actors: list[tuple[list[int], int, int]], figures: MigrationFigures
) -> None:
    progress = [actor(n, *tokens, done=done, free=free) for n, (tokens, done, free) in enumerate(actors)]
    cuts = decide_migrations(progress, PROFILE, figures)
    given_to: dict[int, int] = {}
    for cut in cuts:
        assert cut.saved_s > 0
        assert sum(num for _, num in cut.takers) == len(progress[cut.shard].running)
        for shard, num in cut.takers:
            given_to[shard] = given_to.get(shard, 0) + num
    assert not {cut.shard for cut in cuts} & set(given_to)
    for shard, num in given_to.items():
        assert num <= progress[shard].free_slots
        assert progress[shard].num_done < progress[shard].num_assigned
