"""Whether a replica is held, and when one is started before its use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.holding import LOCAL_HOLDING, HoldingFigures, hold_or_release, hold_until, prewarm_at

KNATIVE = HoldingFigures(load_s=2.0)


@pytest.mark.parametrize(("gap_s", "keep"), [(0.0, True), (35.0, True), (35.3, True), (35.4, False), (600.0, False)])
def test_a_gap_is_idled_through_if_release_and_return_cost_more(gap_s: float, keep: bool) -> None:
    """30 s of drain, 3.3 s of cold start, 2 s of weights."""
    hold = hold_or_release([gap_s], KNATIVE)
    assert hold.keep == keep
    assert hold.saved_s == pytest.approx(abs(35.3 - gap_s))


def test_a_state_that_must_be_written_is_held_longer() -> None:
    stateful = HoldingFigures(load_s=2.0, state_write_s=40.0, state_read_s=20.0)
    assert not hold_or_release([60.0], KNATIVE).keep
    assert hold_or_release([60.0], stateful).keep


def test_locally_replicas_leave_early() -> None:
    assert not hold_or_release([5.0], LOCAL_HOLDING).keep
    assert hold_or_release([1.0], LOCAL_HOLDING).keep


def test_several_gaps_count_by_their_mean() -> None:
    assert hold_or_release([1.0, 60.0], KNATIVE).keep
    assert not hold_or_release([1.0, 90.0], KNATIVE).keep


def test_without_a_past_it_is_released() -> None:
    assert not hold_or_release([], KNATIVE).keep


def test_it_is_held_past_the_longest_gap_or_not_at_all() -> None:
    gaps = [10.0, 20.0]
    assert hold_until(100.0, hold_or_release(gaps, KNATIVE), gaps, buffer_s=2.0) == 122.0
    far = [500.0]
    assert hold_until(100.0, hold_or_release(far, KNATIVE), far, buffer_s=2.0) == 100.0


def test_it_is_started_for_the_shortest_past_duration() -> None:
    assert prewarm_at(1000.0, [60.0, 45.0, 90.0], cold_start_s=3.3, buffer_s=1.0) == pytest.approx(1040.7)
    assert prewarm_at(1000.0, [], cold_start_s=3.3, buffer_s=1.0) is None


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=5), st.floats(0, 100), st.floats(0, 10))
def test_it_is_ready_in_time_for_every_duration_that_was_seen(past: list[float], cold: float, buffer: float) -> None:
    start = prewarm_at(50.0, past, cold, buffer)
    assert start is not None
    assert start >= 50.0
    assert start == 50.0 or start + cold + buffer <= 50.0 + min(past) + 1e-6
