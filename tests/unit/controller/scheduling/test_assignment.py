"""Which actor gets which work."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.actor_time import TimedWork, Work, measure
from controller.scheduling.assignment import (
    Arrangement,
    Assignment,
    arrange,
    assign_in_order,
    cheapest_cuts,
    equal_cuts,
    run_seconds,
    shuffled,
)
from controller.scheduling.decode_profile import DecodeProfile

ROOMY = DecodeProfile(base_s=0.02, per_sequence_s=1e-3, per_context_token_s=1e-6, prefill_token_s=1e-4)
TIGHT = DecodeProfile(
    base_s=0.02,
    per_sequence_s=1e-3,
    per_context_token_s=1e-6,
    prefill_token_s=1e-4,
    max_num_sequences=3,
    kv_capacity_tokens=200,
    preempts=True,
)
SAMPLES = st.lists(st.lists(st.floats(1, 500), min_size=2, max_size=2).map(sorted), min_size=1, max_size=14)
PROFILES = st.sampled_from([ROOMY, TIGHT])
POLICIES: tuple[Assignment, ...] = ("sorted_unequal", "sorted_equal", "random", "balanced", "in_order")
SLACK = 1 + 1e-8


def work_of(samples: list[list[float]]) -> Work:
    return measure([10] * len(samples), samples)


def all_cuts(size: int, num_actors: int) -> list[tuple[int, ...]]:
    return [(0, *inner, size) for inner in itertools.combinations(range(1, size), num_actors - 1)]


@given(items=st.lists(st.integers()), num_actors=st.integers(1, 20))
def test_every_item_is_assigned_once_in_order_and_evenly(items: list[int], num_actors: int) -> None:
    parts = assign_in_order(items, num_actors)
    assert len(parts) == num_actors
    assert [item for part in parts for item in part] == items
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_remainder_goes_to_the_first_actors() -> None:
    assert assign_in_order("abcdefg", 3) == (("a", "b", "c"), ("d", "e"), ("f", "g"))


@given(st.integers(1, 40), st.data())
def test_equal_cuts_are_those_of_an_assignment_in_order(size: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(1, size), min_size=1, max_size=4))
    for number, row in zip(numbers, equal_cuts(size, np.array(numbers)).tolist(), strict=True):
        sizes = [len(part) for part in assign_in_order(range(size), number)]
        assert row[: number + 1] == [0, *itertools.accumulate(sizes)]
        assert set(row[number:]) == {size}


@given(SAMPLES, PROFILES, st.data())
def test_every_policy_gives_everything_once_and_something_to_everybody(
    samples: list[list[float]], profile: DecodeProfile, data: st.DataObject
) -> None:
    num_actors = data.draw(st.integers(1, len(samples)))
    for policy in POLICIES:
        arrangement = arrange(work_of(samples), profile, num_actors, policy, seed=3)
        given_to = [arrangement.of_actor(actor) for actor in range(num_actors)]
        assert sorted(itertools.chain.from_iterable(given_to)) == list(range(len(samples)))
        assert all(given_to)
        assert len(arrangement) == num_actors


@given(SAMPLES, PROFILES, st.data())
def test_unequal_cuts_are_never_slower_and_never_dearer(
    samples: list[list[float]], profile: DecodeProfile, data: st.DataObject
) -> None:
    work = work_of(samples)
    num_actors = data.draw(st.integers(1, len(samples)))
    equal = arrange(work, profile, num_actors, "sorted_equal").seconds
    unequal = arrange(work, profile, num_actors, "sorted_unequal").seconds
    assert unequal.max() <= equal.max() * SLACK
    assert unequal.sum() <= equal.sum() * SLACK


@given(SAMPLES, st.data())
def test_within_room_no_cut_that_is_as_fast_is_cheaper(samples: list[list[float]], data: st.DataObject) -> None:
    num_actors = data.draw(st.integers(1, len(samples)))
    timed = TimedWork(work_of(samples), ROOMY)
    bound = run_seconds(timed, equal_cuts(timed.size, np.array([num_actors])))[0].max()
    cuts, seconds = cheapest_cuts(timed, np.array([num_actors]))
    every = [run_seconds(timed, np.array([cut]))[0] for cut in all_cuts(timed.size, num_actors)]
    cheapest = min(one.sum() for one in every if one.max() <= bound * (1 + 1e-9))
    assert seconds[0].sum() == pytest.approx(cheapest)
    assert (np.diff(cuts[0]) > 0).all()


def test_many_numbers_of_actors_at_once_are_as_each_by_itself() -> None:
    timed = TimedWork(work_of([[float(n), float(n * n % 37 + n)] for n in range(1, 30)]), TIGHT)
    numbers = np.array([3, 29, 1, 8, 3])
    together = cheapest_cuts(timed, numbers)[1]
    for number, row in zip(numbers.tolist(), together, strict=True):
        alone = cheapest_cuts(timed, np.array([number]))[1][0]
        assert row[:number] == pytest.approx(alone)
        assert not row[number:].any()


@given(st.lists(st.integers(1, 9), min_size=6, max_size=6), st.sampled_from([1, 2, 3, 6]))
def test_no_equal_parts_have_a_smaller_sum_of_longest_lengths(lengths: list[int], num_actors: int) -> None:
    """Why the paper sorts: against every assignment to parts of the same size."""
    size = len(lengths) // num_actors

    def sum_of_longest(order: tuple[int, ...]) -> int:
        return sum(max(order[begin : begin + size]) for begin in range(0, len(order), size))

    least = min(map(sum_of_longest, set(itertools.permutations(lengths))))
    assert sum_of_longest(tuple(sorted(lengths))) == least


def test_equal_counts_of_sorted_prompts_lengthen_the_step_and_unequal_ones_need_not() -> None:
    """The published cut saves cost and loses time against parts that are mixed; the unequal one keeps both."""
    samples = [[float(20 + n), float(20 + n) ** 1.2] for n in range(64)]
    work = work_of(samples)
    mixed = arrange(work, ROOMY, 4, "random", seed=1).seconds
    equal = arrange(work, ROOMY, 4, "sorted_equal").seconds
    assert equal.sum() < mixed.sum()
    assert equal.max() > mixed.max()
    unequal = arrange(work, ROOMY, 4, "sorted_unequal").seconds
    assert unequal.sum() < equal.sum()


def test_a_balanced_assignment_is_the_most_even() -> None:
    samples = [[float(n), float(n)] for n in (1, 5, 9, 200, 3, 7, 60, 80)]
    arranged = {policy: arrange(work_of(samples), ROOMY, 3, policy) for policy in POLICIES}
    assert min(arranged, key=lambda policy: float(arranged[policy].seconds.max())) == "balanced"


def test_a_random_assignment_is_a_function_of_its_seed() -> None:
    def places(seed: int) -> Arrangement:
        return arrange(work_of([[1.0, float(n)] for n in range(1, 20)]), ROOMY, 3, "random", seed)

    assert places(1).places.tolist() == places(1).places.tolist()
    assert places(1).places.tolist() != places(2).places.tolist()
    assert sorted(shuffled(9, 5).tolist()) == list(range(9))


def test_in_order_keeps_the_batch_in_its_order() -> None:
    work = work_of([[1.0, 9.0], [1.0, 2.0], [1.0, 5.0], [1.0, 1.0]])
    arrangement = arrange(work, ROOMY, 2, "in_order")
    numbers = [{int(work.order[place]) for place in arrangement.of_actor(actor)} for actor in range(2)]
    assert numbers == [{0, 1}, {2, 3}]


def test_an_actor_begins_with_its_longest() -> None:
    work = work_of([[1.0, float(n)] for n in (3, 9, 1, 5)])
    for policy in POLICIES:
        arrangement = arrange(work, ROOMY, 2, policy, seed=4)
        for actor in range(2):
            lengths = [work.longest[place] for place in arrangement.of_actor(actor)]
            assert lengths == sorted(lengths, reverse=True)
