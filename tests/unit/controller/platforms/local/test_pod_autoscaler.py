"""Bounds, the first scale, the way to zero and the activator's place, on a clock that the tests hold."""

from dataclasses import replace
from typing import Any

import pytest

from controller.platforms.local.cluster_defaults import KNATIVE
from controller.platforms.local.pacing import Pacing
from controller.platforms.local.pod_autoscaler import (
    Activity,
    ScaleState,
    Surroundings,
    at_rest,
    first_scale,
    rescale,
)
from controller.platforms.local.scaling_spec import ScalingSpec

SPEC = ScalingSpec(container_concurrency=1, window_s=15.0)
PACING = Pacing()
ACTIVE = ScaleState(activity=Activity.ACTIVE, since=0.0, num_replicas=1, initialized=True, activator_since=0.0)
INACTIVE = replace(ACTIVE, activity=Activity.INACTIVE, num_replicas=0)
BEHIND = -1
"""Excess burst capacity with which the activator stays in the path."""


def scaled(
    state: ScaleState,
    now: float,
    *,
    desired: int,
    ready: int = 0,
    excess: int = BEHIND,
    spec: ScalingSpec = SPEC,
    **seen: Any,
) -> ScaleState:
    surroundings = {"reachable": True, "raised_minimum": 0, "progress_deadline_s": 600.0, **seen}
    return rescale(
        spec,
        PACING,
        state,
        Surroundings(now=now, desired=desired, excess_burst_capacity=excess, num_ready=ready, **surroundings),
    )


@pytest.mark.parametrize(
    ("desired", "seen", "number"),
    [
        (0, {}, 2),
        (3, {}, 3),
        (9, {}, 6),
        (0, {"raised_minimum": 5}, 5),
        (0, {"raised_minimum": 9}, 6),
        (3, {"reachable": False}, 3),
    ],
)
def test_bounds(desired: int, seen: dict[str, Any], number: int) -> None:
    spec = replace(SPEC, min_scale=2, max_scale=6)
    assert scaled(ACTIVE, 5.0, desired=desired, ready=1, spec=spec, **seen).num_replicas == number


def test_an_unreachable_revision_ignores_its_minimum_and_goes_to_zero() -> None:
    spec = replace(SPEC, min_scale=2)
    state = scaled(replace(ACTIVE, num_replicas=2), 60.0, desired=0, ready=2, spec=spec, reachable=False)
    state = scaled(state, 63.0, desired=0, ready=2, spec=spec, reachable=False)
    assert state.num_replicas == 0


def test_before_a_decision_nothing_changes_and_a_minimum_is_not_heard() -> None:
    assert scaled(INACTIVE, 5.0, desired=-1, raised_minimum=4) == INACTIVE
    assert scaled(ACTIVE, 5.0, desired=-1, ready=1, raised_minimum=4).num_replicas == 1


def test_from_zero_to_active() -> None:
    state = scaled(INACTIVE, 100.0, desired=3)
    assert (state.num_replicas, state.activity, state.since) == (3, Activity.ACTIVATING, 100.0)
    state = scaled(state, 103.0, desired=3, ready=1)
    assert (state.activity, state.since) == (Activity.ACTIVE, 103.0)
    state = scaled(state, 110.0, desired=2, ready=3, raised_minimum=4)
    assert (state.num_replicas, state.activity, state.since) == (4, Activity.ACTIVATING, 110.0), "short of its minimum"
    assert scaled(state, 112.0, desired=2, ready=4, raised_minimum=4).activity is Activity.ACTIVE


def test_the_last_one_stays_until_the_window_of_activity_is_over() -> None:
    state = scaled(replace(ACTIVE, num_replicas=4), 14.0, desired=0, ready=4)
    assert (state.num_replicas, state.look_at) == (1, 15.0)


def test_the_fast_path_to_zero_behind_the_activator() -> None:
    state = scaled(ACTIVE, 60.0, desired=0, ready=1)
    assert (state.num_replicas, state.activity, state.look_at) == (1, Activity.INACTIVE, 63.0)
    state = scaled(state, 62.0, desired=0, ready=1)
    assert state.num_replicas == 1
    assert scaled(state, 63.0, desired=0, ready=1).num_replicas == 0


def test_the_grace_period_where_the_activator_has_just_come_into_the_path() -> None:
    state = scaled(replace(ACTIVE, activator_since=None), 60.0, desired=0, ready=1, excess=5)
    assert (state.activity, state.activator_since) == (Activity.INACTIVE, 60.0)
    state = scaled(state, 61.0, desired=0, ready=1, excess=5)
    assert (state.num_replicas, state.look_at) == (1, 90.0)
    assert scaled(state, 89.0, desired=0, ready=1, excess=5).num_replicas == 1
    assert scaled(state, 90.0, desired=0, ready=1, excess=5).num_replicas == 0


def test_retention_of_the_last() -> None:
    spec = replace(SPEC, retention_s=120.0)
    state = scaled(ACTIVE, 60.0, desired=0, ready=1, spec=spec)
    state = scaled(state, 63.0, desired=0, ready=1, spec=spec)
    assert (state.num_replicas, state.look_at) == (1, 180.0)
    assert scaled(state, 180.0, desired=0, ready=1, spec=spec).num_replicas == 0


def test_a_request_on_the_way_to_zero_makes_it_active_anew() -> None:
    state = scaled(ACTIVE, 60.0, desired=0, ready=1)
    state = scaled(state, 61.0, desired=1, ready=1)
    assert (state.num_replicas, state.activity, state.since) == (1, Activity.ACTIVE, 61.0)
    assert scaled(state, 62.0, desired=0, ready=1).look_at == 76.0


def test_what_does_not_become_ready_is_given_up() -> None:
    state = scaled(INACTIVE, 100.0, desired=1, progress_deadline_s=60.0)
    state = scaled(state, 120.0, desired=0, progress_deadline_s=60.0)
    assert (state.num_replicas, state.activity, state.look_at) == (1, Activity.ACTIVATING, 190.0)
    state = scaled(state, 190.0, desired=0, progress_deadline_s=60.0)
    assert (state.num_replicas, state.activity, state.timed_out) == (0, Activity.INACTIVE, True)
    assert not scaled(state, 200.0, desired=1).timed_out, "another request is another try"


def test_an_initial_scale_of_zero_is_reached_at_once() -> None:
    state = scaled(first_scale(SPEC, 7.0), 7.0, desired=0)
    assert (state.num_replicas, state.initialized, state.activity) == (0, True, Activity.INACTIVE)


def test_an_initial_scale_is_reached_once_and_then_forgotten() -> None:
    spec = replace(SPEC, initial_scale=2, cluster=KNATIVE)
    state = scaled(first_scale(spec, 0.0), 0.0, desired=-1, spec=spec)
    state = scaled(state, 2.0, desired=0, ready=1, spec=spec)
    assert (state.num_replicas, state.initialized) == (2, False)
    state = scaled(state, 4.0, desired=0, ready=2, spec=spec)
    assert state.initialized
    state = scaled(state, 6.0, desired=0, ready=2, spec=spec)
    assert state.num_replicas == 1


def test_an_initial_scale_that_is_never_reached_is_given_up() -> None:
    spec = replace(SPEC, initial_scale=2, cluster=KNATIVE)
    state = scaled(first_scale(spec, 0.0), 629.0, desired=0, ready=1, spec=spec)
    assert state.num_replicas == 2
    state = scaled(state, 630.0, desired=0, ready=1, spec=spec)
    assert (state.num_replicas, state.initialized, state.timed_out) == (0, False, True)
    assert scaled(state, 700.0, desired=0, spec=spec).num_replicas == 0


def test_a_minimum_is_reached_before_the_first_scale_counts() -> None:
    spec = replace(SPEC, min_scale=2)
    state = scaled(first_scale(spec, 0.0), 0.0, desired=0, spec=spec)
    assert (state.num_replicas, state.initialized) == (2, False)
    assert scaled(state, 3.0, desired=0, ready=2, spec=spec).initialized


@pytest.mark.parametrize(
    ("desired", "ready", "excess", "in_path"),
    [(2, 2, -1, True), (2, 2, 0, False), (2, 2, 7, False), (0, 0, 7, True), (-1, 0, 7, True)],
)
def test_whether_the_activator_is_in_the_path(desired: int, ready: int, excess: int, in_path: bool) -> None:
    state = scaled(INACTIVE, 50.0, desired=desired, ready=ready, excess=excess)
    assert (state.activator_since is not None) == in_path


def test_since_when_the_activator_is_in_the_path() -> None:
    state = scaled(ACTIVE, 10.0, desired=1, ready=1)
    assert state.activator_since == 0.0
    state = scaled(state, 20.0, desired=1, ready=1, excess=3)
    assert scaled(state, 30.0, desired=1, ready=1).activator_since == 30.0


def test_at_rest_after_everything_was_taken_away() -> None:
    state = at_rest(replace(ACTIVE, num_replicas=4, activator_since=None), 9.0)
    assert (state.num_replicas, state.activity, state.activator_since) == (0, Activity.INACTIVE, 9.0)
    assert scaled(state, 10.0, desired=0).num_replicas == 0
