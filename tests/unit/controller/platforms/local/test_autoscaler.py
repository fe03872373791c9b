"""The autoscaler's decisions in virtual time."""

from dataclasses import replace

import pytest

from controller.platforms.local.autoscaler import UNKNOWN, AutoscalerState, Load, Observation, decide, started
from controller.platforms.local.scaling_spec import ScalingSpec

SPEC = ScalingSpec(container_concurrency=1, utilization=1.0, window_s=15.0)
RESTED = AutoscalerState(desired=0)


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
        load=Load(stable=stable, panic=stable if panic is None else panic),
    )
    return decide(spec, state, seen)


def in_calm(spec: ScalingSpec, *, ready: int, stable: float, at: float = 100.0) -> int:
    """The decision without a burst, for replicas that have been active for long."""
    state = replace(RESTED, desired=ready)
    return decided(spec, state, at, ready=ready, stable=stable, panic=0.0).desired


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
    state = decided(SPEC, replace(RESTED, desired=1), 100.0, ready=1, stable=1.0, panic=6.0)
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
    state = decided(spec, RESTED, 100.0, ready=4, stable=4.0)
    state = decided(spec, state, 109.0, ready=4, stable=2.0)
    assert state.desired == 4
    assert decided(spec, state, 111.0, ready=4, stable=2.0).desired == 2


def test_without_metrics_the_last_decision_stands() -> None:
    state = replace(RESTED, desired=3)
    assert decide(SPEC, state, Observation(now=1.0, num_ready=3, load=None)) is state


def test_an_unreachable_revision_shrinks_at_any_rate() -> None:
    seen = Observation(now=1.0, num_ready=8, load=Load(stable=0.0, panic=0.0), reachable=False)
    assert decide(SPEC, RESTED, seen).desired == 0


def test_no_more_than_a_thousandfold_at_once() -> None:
    assert decided(SPEC, RESTED, 0.0, ready=0, stable=5000.0).desired == 1000


@pytest.mark.parametrize(
    ("burst_capacity", "ready", "in_flight", "excess"),
    [(-1, 100, 0.0, -1), (0, 0, 9.0, 0), (211, 10, 0.0, -201), (211, 212, 0.0, 1), (211, 212, 1.5, -1), (3, 4, 0.5, 0)],
)
def test_excess_burst_capacity(burst_capacity: float, ready: int, in_flight: float, excess: int) -> None:
    spec = replace(SPEC, target_burst_capacity=burst_capacity)
    assert decided(spec, RESTED, 0.0, ready=ready, stable=in_flight).excess_burst_capacity == excess


@pytest.mark.parametrize(("burst_capacity", "excess"), [(-1, -1), (0, 0), (211, -210), (1, 0)])
def test_a_new_autoscaler_knows_nothing_but_the_capacity_of_one(burst_capacity: float, excess: int) -> None:
    state = started(replace(SPEC, target_burst_capacity=burst_capacity), now=5.0, num_ready=1)
    assert (state.desired, state.excess_burst_capacity, state.panic_since) == (UNKNOWN, excess, None)


def test_an_autoscaler_that_was_started_again_keeps_what_there_is_for_a_window() -> None:
    state = started(SPEC, now=100.0, num_ready=6)
    state = decided(SPEC, state, 102.0, ready=6, stable=1.0)
    assert state.desired == 6
    assert decided(SPEC, state, 115.5, ready=6, stable=1.0).desired == 3
