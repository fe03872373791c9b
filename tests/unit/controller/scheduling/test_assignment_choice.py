"""Which assignment suits so many actors best."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.actor_time import TimedWork, Work, measure
from controller.scheduling.assignment import arrange, even_cuts
from controller.scheduling.assignment_choice import ChosenParts, balanced_seconds, choose_parts, last_seconds, weigh
from controller.scheduling.decode_profile import DecodeProfile

LATENCY = DecodeProfile(base_s=0.02, per_sequence_s=1e-5, per_context_token_s=1e-9, prefill_token_s=1e-6)
"""A step costs its base, whatever runs: a GPU with a small batch."""
COMPUTE = DecodeProfile(base_s=1e-4, per_sequence_s=1e-3, per_context_token_s=1e-7, prefill_token_s=1e-5)
"""A step costs what runs: a core."""
SKEWED = [[float(20 + n), float(20 + n) ** 1.3] for n in range(64)]
PROFILES = st.sampled_from([LATENCY, COMPUTE])
SAMPLES = st.lists(st.lists(st.floats(1, 500), min_size=2, max_size=2).map(sorted), min_size=1, max_size=14)


def work_of(samples: list[list[float]]) -> Work:
    return measure([10] * len(samples), samples)


def chosen(
    samples: list[list[float]], profile: DecodeProfile, *numbers: int, lambda_: float = 0.7, shared: bool = False
) -> ChosenParts:
    work = work_of(samples)
    return choose_parts(work, TimedWork(work, profile), profile, np.array(numbers), lambda_, shared_threads=shared)


def test_where_a_step_costs_what_runs_no_actor_gets_the_most_tokens() -> None:
    """The equal cut of the sorted prompts takes twice as long as it need."""
    work = work_of(SKEWED)
    equal = arrange(work, COMPUTE, 4, "sorted_equal").seconds
    found = chosen(SKEWED, COMPUTE, 4)
    assert found.seconds[0].max() < 0.7 * equal.max()
    assert found.seconds[0].max() == pytest.approx(arrange(work, COMPUTE, 4, "balanced").seconds.max(), rel=0.1)


def test_where_a_step_costs_its_base_short_prompts_have_actors_of_their_own() -> None:
    found = chosen(SKEWED, LATENCY, 4)
    assert not found.is_balanced[0]
    assert found.seconds[0].sum() < 0.8 * arrange(work_of(SKEWED), LATENCY, 4, "balanced").seconds.sum()


def test_lambda_weighs_time_against_cost() -> None:
    fast, cheap = (chosen(SKEWED, LATENCY, 4, lambda_=lambda_) for lambda_ in (1.0, 0.0))
    assert fast.time_s[0] < cheap.time_s[0]
    assert fast.held_s[0] > cheap.held_s[0]


def test_on_shared_cores_only_the_time_counts() -> None:
    shared, fast = chosen(SKEWED, LATENCY, 4, lambda_=0.0, shared=True), chosen(SKEWED, LATENCY, 4, lambda_=1.0)
    assert shared.time_s[0] == pytest.approx(fast.time_s[0])


@given(SAMPLES, PROFILES, st.floats(0, 1), st.data())
def test_each_actor_gets_something_and_the_times_are_those_of_the_parts(
    samples: list[list[float]], profile: DecodeProfile, lambda_: float, data: st.DataObject
) -> None:
    number = data.draw(st.integers(1, len(samples)))
    found = chosen(samples, profile, number, lambda_=lambda_)
    timed = TimedWork(work_of(samples), profile)
    cuts = found.cuts[0]
    assert (np.diff(cuts[: number + 1]) > 0).all()
    assert (cuts[0], cuts[number]) == (0, len(samples))
    assert found.cut_seconds[0][:number] == pytest.approx(timed.seconds(cuts[:number], cuts[1 : number + 1]))
    assert found.held_s[0] > 0
    assert found.time_s[0] > 0


@given(SAMPLES, st.data())
def test_many_numbers_at_once_are_as_each_by_itself(samples: list[list[float]], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(1, len(samples)), min_size=1, max_size=4))
    together = chosen(samples, LATENCY, *numbers)
    for row, number in enumerate(numbers):
        alone = chosen(samples, LATENCY, number)
        assert together.time_s[row] == pytest.approx(alone.time_s[0])
        assert together.held_s[row] == pytest.approx(alone.held_s[0])
        assert together.is_balanced[row] == alone.is_balanced[0]


@pytest.mark.parametrize("profile", [LATENCY, COMPUTE])
@pytest.mark.parametrize("number", [2, 5, 16])
def test_balanced_times_are_about_those_of_balanced_parts(profile: DecodeProfile, number: int) -> None:
    work = work_of(SKEWED)
    about = balanced_seconds(work, TimedWork(work, profile), profile, np.array([number]))[0]
    made = arrange(work, profile, number, "balanced").seconds
    assert about.max() == pytest.approx(made.max(), rel=0.1)
    assert about.sum() == pytest.approx(made.sum(), rel=0.05)
    assert about[-1] == about.max()


def test_the_last_of_many_alike_is_later_than_that_of_a_few() -> None:
    assert last_seconds(np.array([[10.0, 1.0, 1.0]]))[0] == pytest.approx(10.0)
    assert last_seconds(np.array([[10.0, 10.0, 0.0]]))[0] == pytest.approx(10.0 * 2 ** (1 / 16))
    assert last_seconds(np.array([[10.0] * 4]))[0] == pytest.approx(10.0 * 4 ** (1 / 16))


def test_time_and_cost_are_weighed_by_their_ratios() -> None:
    """Twice the time is worth a fifth of the cost at lambda 0.7: 0.7 ln 2 = 0.3 ln 5.04."""
    one, other = weigh(np.array([[1.0, 9.08], [2.0, 0.0]]), 0.0, shared_threads=False).tolist()
    assert one - other == pytest.approx(np.log(10.08 / 2.0))
    timed = weigh(np.array([[1.0, 9.08], [2.0, 0.0]]), 0.3, shared_threads=True)
    assert timed.tolist() == pytest.approx(np.log([9.08, 2.0]).tolist())


def truth(seed: int) -> tuple[list[list[float]], list[list[float]]]:
    """Expected lengths of a batch, and those that come."""
    noise = np.random.default_rng(seed)
    rows = 150 * np.exp(noise.normal(0, 0.6, (48, 1)))
    epochs = (rows * np.exp(noise.normal(0, 0.15, (48, 1)) + noise.normal(0, 0.25, (48, 4))) for _ in range(2))
    expected, come = (np.sort(lengths, axis=1).tolist() for lengths in epochs)
    return expected, come


@pytest.mark.parametrize("profile", [LATENCY, COMPUTE])
@pytest.mark.parametrize("number", [2, 4, 8])
def test_with_other_lengths_than_expected_it_is_no_worse_than_the_equal_cut_and_about_as_was_said(
    profile: DecodeProfile, number: int
) -> None:
    gains, ratios = [], []
    for seed in range(12):
        expected, come = truth(seed)
        work = work_of(expected)
        found = chosen(expected, profile, number)
        timed = TimedWork(work, profile)
        mixed = arrange(work, profile, number, "balanced")
        equal, _ = even_cuts(timed, np.array([number]))
        places = mixed.places if found.is_balanced[0] else np.arange(len(come))
        cuts = mixed.cuts if found.is_balanced[0] else found.cuts[0]
        real, plain = (
            np.array(
                [
                    float(one.seconds(np.array([0]), np.array([one.size]))[0])
                    for begin, end in itertools.pairwise(at)
                    for one in [TimedWork(work_of([come[work.order[place]] for place in order[begin:end]]), profile)]
                ]
            )
            for order, at in ((places, cuts), (np.arange(len(come)), equal[0]))
        )
        gains.append(0.7 * np.log(plain.max() / real.max()) + 0.3 * np.log(plain.sum() / real.sum()))
        ratios.append(real.max() / found.time_s[0])
    assert np.mean(gains) >= 0
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.2)
