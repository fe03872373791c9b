"""What rounds really took, against their plans."""

import pytest

from controller.runs.measuring import held_seconds, measure_round, relative_error
from controller.scheduling.observations import Resources
from tests.fakes.planned import planned
from tests.unit.controller.runs.test_schedule_metrics import KNOWN, life, observed


def test_replicas_are_held_from_their_start_to_their_end_within_the_round() -> None:
    lives = [life(None), life(90.0), life(105.0), life(90.0, ended_at=102.0), life(120.0), life(90.0, ended_at=95.0)]
    assert held_seconds(lives, 100.0, 110.0) == 10.0 + 5.0 + 2.0


def test_a_round_is_compared_with_its_plan() -> None:
    made = planned(history=KNOWN)
    expected = made.plan.expected
    assert expected is not None
    took = measure_round(observed(made, lives=(life(100.0), life(105.0))))
    assert (took.time_s, took.replica_s, took.unit_s) == (10.0, 15.0, 15.0)
    assert took.time_error == pytest.approx((expected.time_s - 10.0) / 10.0)
    assert took.cost_error == pytest.approx((expected.unit_s - 15.0) / 15.0)


def test_the_cost_of_one_machine_is_its_threads_for_all_the_time() -> None:
    machine = Resources(num_threads=2, max_actors=8, shared_threads=True)
    took = measure_round(observed(planned(history=KNOWN, resources=machine), lives=(life(105.0),)))
    assert (took.replica_s, took.unit_s) == (5.0, 20.0)


def test_nothing_has_no_error() -> None:
    assert relative_error(1.0, 0.0) is None
    assert relative_error(3.0, 2.0) == 0.5
    assert measure_round(observed(lives=())).cost_error is None
