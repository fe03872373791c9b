"""How many actors."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.actor_count import (
    FINEST,
    ActorLimits,
    Candidate,
    best,
    choose_num_actors,
    compare,
    fewest_in_waves,
    fewest_with_room,
    numbers_to_compare,
    score,
    shared_profile,
)
from controller.scheduling.actor_time import Work, measure
from controller.scheduling.decode_profile import DecodeProfile

PROFILE = DecodeProfile(base_s=0.01, per_sequence_s=1e-3, per_context_token_s=1e-6, prefill_token_s=1e-4)
LENGTHS = st.lists(st.floats(1, 1000), min_size=1, max_size=30)


def work_of(lengths: list[float], prompt: int = 10) -> Work:
    return measure([prompt] * len(lengths), [(length,) for length in lengths])


def table_of(
    lengths: list[float], lambda_: float, limits: ActorLimits | None = None, profile: DecodeProfile = PROFILE
) -> tuple[Candidate, ...]:
    limits = limits or ActorLimits(max_actors=len(lengths))
    numbers = range(1, min(limits.max_actors, len(lengths)) + 1)
    return compare([(work_of(lengths), numbers)], profile, limits, lambda_).table


@pytest.mark.parametrize(
    ("num_items", "num_threads", "max_actors", "expected"),
    [(32, 2, 8, 2), (1, 2, 8, 1), (32, 16, 8, 8), (32, 1, 8, 1), (0, 4, 8, 1)],
)
def test_without_a_profile_one_per_thread_within_items_and_replicas(
    num_items: int, num_threads: int, max_actors: int, expected: int
) -> None:
    assert choose_num_actors(num_items, num_threads, max_actors) == expected


@given(LENGTHS, st.floats(0, 100))
def test_lambda_1_is_the_fastest_number_and_lambda_0_the_cheapest(lengths: list[float], overhead_s: float) -> None:
    limits = ActorLimits(max_actors=len(lengths), overhead_s=overhead_s, start_s=overhead_s / 2)
    fastest, cheapest = table_of(lengths, 1.0, limits), table_of(lengths, 0.0, limits)
    assert best(fastest, limits).time_s == pytest.approx(min(one.time_s for one in fastest))
    assert best(cheapest, limits).cost == pytest.approx(min(one.cost for one in cheapest))


@given(LENGTHS, st.floats(0, 1))
def test_the_choice_has_the_least_score_of_all_numbers(lengths: list[float], lambda_: float) -> None:
    limits = ActorLimits(max_actors=len(lengths))
    table = table_of(lengths, lambda_, limits)
    assert [one.num_actors for one in table] == list(range(1, len(lengths) + 1))
    times, costs = [one.time_s for one in table], [one.cost for one in table]
    by_hand = []
    for one in table:
        slow = (one.time_s - min(times)) / (max(times) - min(times)) if max(times) > min(times) else 0.0
        dear = (one.cost - min(costs)) / (max(costs) - min(costs)) if max(costs) > min(costs) else 0.0
        by_hand.append(lambda_ * slow + (1 - lambda_) * dear)
    assert [one.score for one in table] == pytest.approx(by_hand)
    assert best(table, limits).score == pytest.approx(min(by_hand))


def test_equal_times_or_costs_divide_by_nothing() -> None:
    assert score(np.array([2.0, 2.0]), np.array([3.0, 1.0]), 0.7).tolist() == pytest.approx([0.3, 0.0])
    assert score(np.array([2.0, 1.0]), np.array([3.0, 3.0]), 0.7).tolist() == pytest.approx([0.7, 0.0])
    assert score(np.array([2.0]), np.array([3.0]), 0.7).tolist() == [0.0]


def test_capacity_gives_a_sweet_spot_between_few_and_many() -> None:
    """With little room an engine that pre-empts wastes time: more actors are faster and cheaper, up to a point."""
    tight = replace(PROFILE, kv_capacity_tokens=2000, preempts=True, prefill_token_s=0.02)
    limits = ActorLimits(max_actors=40, overhead_s=5.0)
    table = table_of([300.0] * 40, 0.7, limits, tight)
    costs = [one.cost for one in table]
    cheapest = costs.index(min(costs))
    assert 0 < cheapest < len(table) - 1
    assert costs[0] > costs[cheapest] < costs[-1]
    assert table[cheapest].time_s < table[0].time_s


def test_what_an_actor_costs_besides_keeps_work_on_few() -> None:
    tight = replace(PROFILE, kv_capacity_tokens=2000, preempts=True, prefill_token_s=0.02)
    free, dear = (ActorLimits(max_actors=40, overhead_s=overhead_s) for overhead_s in (0.0, 100.0))
    lengths = [300.0] * 40
    cheapest = [best(table_of(lengths, 0.0, limits, tight), limits).num_actors for limits in (free, dear)]
    assert cheapest[0] > cheapest[1]


def test_the_scale_forgets_how_much_dearer_the_dearest_is() -> None:
    """The published scaling: costs that are linear in the number of actors weigh the same at any slope."""
    numbers = np.arange(1.0, 6.0)
    flat, steep = (score(10 / numbers, costs, 0.5) for costs in (numbers, 7 + 99 * numbers))
    assert flat.tolist() == pytest.approx(steep.tolist())


def test_actors_that_are_up_cost_no_start() -> None:
    lengths = [20.0] * 16
    limits = ActorLimits(max_actors=16, overhead_s=60.0, start_s=4.0, num_warm=5)
    table = table_of(lengths, 0.0, limits)
    cold = table_of(lengths, 0.0, replace(limits, num_warm=0))
    assert table[4].time_s == pytest.approx(cold[4].time_s - 4.0)
    assert table[4].cost == pytest.approx(cold[4].cost - 5 * 60.0)
    assert table[6].cost == pytest.approx(cold[6].cost - 5 * 60.0)


def test_tensor_parallel_actors_cost_their_gpus() -> None:
    single, four = ActorLimits(max_actors=4), ActorLimits(max_actors=4, units_per_actor=4)
    for one, other in zip(table_of([50.0] * 8, 0.7, single), table_of([50.0] * 8, 0.7, four), strict=True):
        assert other.cost == pytest.approx(4 * one.cost)


def test_a_number_whose_transfers_are_not_hidden_is_no_candidate() -> None:
    """The weights take longer to come than the longest prompts to decode: only the learner's own actor is left."""
    lengths = [100.0] * 6
    late = ActorLimits(max_actors=6, head_start_s=-50.0)
    table = table_of(lengths, 1.0, late)
    assert [one.overlaps for one in table] == [True, *[False] * 5]
    assert best(table, late).num_actors == 1
    early = replace(late, head_start_s=0.0)
    assert best(table_of(lengths, 1.0, early), early).num_actors == 6


def test_without_any_that_overlaps_the_best_of_all_is_taken() -> None:
    limits = ActorLimits(max_actors=6, head_start_s=-50.0)
    table = compare([(work_of([100.0] * 6), range(2, 7))], PROFILE, limits, 1.0).table
    assert not any(one.overlaps for one in table)
    assert best(table, limits).num_actors == 6


@pytest.mark.parametrize(
    ("slots", "room", "expected"), [(256, None, 1), (4, None, 3), (256, 500, 3), (256, 1250, 1), (256, 110, 11)]
)
def test_the_fewest_actors_hold_everything_at_once(slots: int, room: int | None, expected: int) -> None:
    """12 completions of 10 + 90 tokens; room is counted in tokens, whoever has them."""
    profile = replace(PROFILE, max_num_sequences=slots, kv_capacity_tokens=room)
    assert fewest_with_room(work_of([90.0] * 12), profile) == expected


@pytest.mark.parametrize(("with_room", "most", "expected"), [(3, 8, 3), (8, 8, 8), (9, 8, 5), (24, 8, 8), (25, 8, 7)])
def test_where_not_all_fit_at_once_no_more_waves_are_taken_than_must_be(
    with_room: int, most: int, expected: int
) -> None:
    assert fewest_in_waves(with_room, most) == expected


def test_sequences_that_end_early_make_room() -> None:
    """The moment the long one is at its longest, the short ones are gone."""
    profile = replace(PROFILE, kv_capacity_tokens=1000)
    assert fewest_with_room(work_of([10.0] * 20 + [900.0]), profile) == 1


def test_shared_threads_are_divided_and_then_waited_for() -> None:
    one, two = (shared_profile(PROFILE, num, threads=2, profile_threads=1) for num in (1, 2))
    assert one.base_s == two.base_s == PROFILE.base_s
    assert one.per_sequence_s < two.per_sequence_s == PROFILE.per_sequence_s
    four = shared_profile(PROFILE, 4, threads=2, profile_threads=1)
    assert four.step_seconds(10, 100) == pytest.approx(2 * two.step_seconds(10, 100))


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("num_prompts", [16, 17, 31, 32, 50])
def test_on_shared_threads_equal_prompts_get_one_actor_per_thread(threads: int, num_prompts: int) -> None:
    for lambda_ in (0.0, 0.7, 1.0):
        limits = ActorLimits(max_actors=threads, shared_threads=threads)
        table = table_of([200.0] * num_prompts, lambda_, limits)
        assert best(table, limits).num_actors == threads


def test_on_shared_threads_cost_is_the_machines_time() -> None:
    limits = ActorLimits(max_actors=4, shared_threads=4)
    for one in table_of([50.0, 70.0, 90.0, 10.0], 0.7, limits):
        assert one.cost == pytest.approx(4 * one.time_s)


def test_all_small_numbers_are_compared_and_of_large_ones_a_few() -> None:
    assert numbers_to_compare(1, 8) == list(range(1, 9))
    many = numbers_to_compare(128, 512)
    assert (many[0], many[-1]) == (128, 512)
    assert len(many) < 25
    assert all(after - before <= before * FINEST for before, after in itertools.pairwise(many))
    assert numbers_to_compare(5, 5) == [5]
