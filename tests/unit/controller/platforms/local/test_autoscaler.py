"""The autoscaler's decisions in virtual time."""

from dataclasses import replace

import pytest

from controller.platforms.local.autoscaler import AutoscalerState, Observation, ScalingSpec, decide

SPEC = ScalingSpec(container_concurrency=1, utilization=1.0, window_s=15.0)
RESTED = AutoscalerState(initialized=True)


def decided(
    spec: ScalingSpec,
    state: AutoscalerState,
    now: float,
    *,
    ready: int,
    stable: float,
    panic: float | None = None,
) -> AutoscalerState:
    seen = Observation(
        now=now,
        num_ready=ready,
        stable_concurrency=stable,
        panic_concurrency=stable if panic is None else panic,
    )
    return decide(spec, state, seen)


def in_calm(spec: ScalingSpec, *, ready: int, stable: float, at: float = 100.0) -> int:
    """The decision without a burst, for replicas that have been active for long."""
    state = replace(RESTED, desired=ready, active_since=0.0)
    return decided(spec, state, at, ready=ready, stable=stable, panic=0.0).desired


@pytest.mark.parametrize(
    ("concurrency_limit", "target", "utilization", "expected"),
    [
        (1, None, 1.0, 1.0),
        (1, None, 0.7, 0.7),
        (0, None, 0.7, 70.0),
        (10, 4.0, 0.5, 2.0),
        (2, 8.0, 1.0, 2.0),
        (0, 8.0, 1.0, 8.0),
    ],
)
def test_target_concurrency(concurrency_limit: int, target: float | None, utilization: float, expected: float) -> None:
    spec = ScalingSpec(container_concurrency=concurrency_limit, target=target, utilization=utilization)
    assert spec.target_concurrency == expected


@pytest.mark.parametrize(("window_s", "panic_window_s"), [(60, 6), (15, 2), (6, 1), (14, 1)])
def test_panic_window_is_whole_seconds(window_s: float, panic_window_s: float) -> None:
    assert ScalingSpec(window_s=window_s).panic_window_s == panic_window_s


def test_as_many_replicas_as_the_mean_concurrency_needs() -> None:
    assert in_calm(SPEC, ready=4, stable=3.2) == 4
    assert in_calm(SPEC, ready=4, stable=2.9) == 3
    assert in_calm(replace(SPEC, utilization=0.7), ready=4, stable=4.0) == 6
    assert in_calm(replace(SPEC, container_concurrency=4), ready=2, stable=5.0) == 2


def test_a_first_request_wakes_one_replica() -> None:
    assert decided(SPEC, RESTED, 0.0, ready=0, stable=1.0).desired == 1


def test_activation_scale_wakes_more_and_stands_while_anything_is_seen() -> None:
    spec = replace(SPEC, activation_scale=4)
    assert decided(spec, RESTED, 0.0, ready=0, stable=1.0).desired == 4
    assert in_calm(spec, ready=4, stable=0.1) == 4
    assert in_calm(spec, ready=1, stable=0.0) == 0


def test_at_most_half_is_taken_away_at_once() -> None:
    assert [in_calm(SPEC, ready=ready, stable=0.0) for ready in (8, 4, 3, 2, 1)] == [4, 2, 1, 1, 0]


def test_a_burst_is_met_and_nothing_is_taken_away_until_it_is_a_window_old() -> None:
    state = decided(SPEC, replace(RESTED, desired=1, active_since=0.0), 100.0, ready=1, stable=1.0, panic=6.0)
    assert state.desired == 6
    state = decided(SPEC, state, 102.0, ready=6, stable=2.0, panic=0.0)
    assert state.desired == 6, "in panic the number only rises"
    state = decided(SPEC, state, 115.0, ready=6, stable=2.0, panic=0.0)
    assert state.desired == 6
    state = decided(SPEC, state, 115.5, ready=6, stable=2.0, panic=0.0)
    assert state.desired == 3, "six can be halved"
    assert state.panic_since is None


def test_scale_down_delay_keeps_the_largest_decision() -> None:
    spec = replace(SPEC, scale_down_delay_s=10.0)
    state = decided(spec, replace(RESTED, active_since=0.0), 100.0, ready=4, stable=4.0)
    state = decided(spec, state, 109.0, ready=4, stable=2.0)
    assert state.desired == 4
    assert decided(spec, state, 111.0, ready=4, stable=2.0).desired == 2


def test_zero_only_after_the_function_has_been_active_for_a_window() -> None:
    state = decided(SPEC, replace(RESTED, desired=1), 10.0, ready=1, stable=0.0)
    assert state.desired == 1
    assert decided(SPEC, state, 24.9, ready=1, stable=0.0).desired == 1
    assert decided(SPEC, state, 25.0, ready=1, stable=0.0).desired == 0


def test_the_last_replica_is_retained() -> None:
    spec = replace(SPEC, retention_s=30.0)
    state = decided(spec, replace(RESTED, desired=1, active_since=0.0), 100.0, ready=1, stable=0.0)
    assert state.desired == 1
    assert decided(spec, state, 129.0, ready=1, stable=0.0).desired == 1
    assert decided(spec, state, 130.0, ready=1, stable=0.0).desired == 0


def test_a_function_that_never_became_ready_is_given_up_after_the_window() -> None:
    state = decided(SPEC, RESTED, 0.0, ready=0, stable=1.0)
    assert decided(SPEC, state, 16.0, ready=0, stable=0.0).desired == 0


def test_initial_scale_is_reached_once() -> None:
    spec = replace(SPEC, initial_scale=2)
    state = decided(spec, AutoscalerState(), 0.0, ready=0, stable=0.0)
    assert state.desired == 2
    state = decided(spec, state, 2.0, ready=2, stable=0.0)
    state = decided(spec, state, 20.0, ready=2, stable=0.0)
    assert state.desired == 1
    assert decided(spec, state, 22.0, ready=1, stable=0.0).desired == 0


def test_bounds() -> None:
    spec = ScalingSpec(min_scale=1, max_scale=4)
    assert [spec.bounded(n) for n in (0, 2, 9)] == [1, 2, 4]
    assert spec.bounded(0, raised_minimum=3) == 3
    assert spec.bounded(0, raised_minimum=9) == 4
    assert ScalingSpec().bounded(9) == 9
