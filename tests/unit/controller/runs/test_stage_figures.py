"""Figures of a stage's replicas from their lives."""

from dataclasses import replace
from typing import Any

from controller.platforms.base import PlatformFigures, ReplicaLife
from controller.runs.past_steps import PastSteps
from controller.runs.stage_figures import NUM_LIVES, lives_of, stage_figures
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage
from tests.fakes.planned import ROLLOUT

PAST = PastSteps(loads_s={Stage.ROLLOUT: (0.5, 0.25, 9.0)}, reloads_s={Stage.ROLLOUT: (0.125,), Stage.LEARNER: (7.0,)})
PLATFORM = PlatformFigures(cold_start_s=7.0, drain_s=30.0)


def life(scheduled_at: float = 0.0, **fields: Any) -> ReplicaLife:
    whole: dict[str, Any] = {
        "instance": InstanceId("a"),
        "function": "rollout",
        "stages": (Stage.ROLLOUT,),
        "revision": "rollout-00001",
        "num_cpus": 0.5,
        "num_gpus": 0,
        "scheduled_at": scheduled_at,
    }
    return ReplicaLife(**whole | fields)


def test_before_any_replica_the_platform_says_it() -> None:
    figures = stage_figures(Stage.ROLLOUT, [], PastSteps(), PLATFORM)
    assert (figures.cold_start_s, figures.drain_s, figures.load_s, figures.units) == (7.0, 30.0, 0.0, 1.0)


def test_what_was_measured_counts_by_its_median() -> None:
    lives = [
        life(0.0, ready_at=2.0, draining_at=10.0, ended_at=11.0),
        life(5.0, ready_at=8.0, draining_at=10.0, ended_at=14.0),
        life(6.0, ready_at=600.0),
        life(9.0),
    ]
    figures = stage_figures(Stage.ROLLOUT, lives, PAST, PLATFORM)
    assert (figures.cold_start_s, figures.drain_s, figures.load_s, figures.reload_s) == (3.0, 2.5, 0.5, 0.125)


def test_what_was_inferred_is_no_measurement() -> None:
    lives = [life(0.0, ready_at=1.0, draining_at=2.0, ended_at=99.0, inferred=True)]
    figures = stage_figures(Stage.ROLLOUT, lives, PastSteps(), PLATFORM)
    assert (figures.cold_start_s, figures.drain_s) == (7.0, 30.0)


def test_clocks_that_disagree_make_no_time_negative() -> None:
    figures = stage_figures(
        Stage.ROLLOUT, [life(5.0, ready_at=4.0, draining_at=4.0, ended_at=3.0)], PastSteps(), PLATFORM
    )
    assert (figures.cold_start_s, figures.drain_s) == (0.0, 0.0)


def test_units_are_gpus_or_else_cpus_of_the_newest_replica() -> None:
    cpu, gpu = life(0.0), life(1.0, num_gpus=4, num_cpus=8.0)
    assert stage_figures(Stage.ROLLOUT, [cpu], PastSteps(), PLATFORM).units == 0.5
    assert stage_figures(Stage.ROLLOUT, [gpu, cpu], PastSteps(), PLATFORM).units == 4.0


def test_old_lives_are_forgotten() -> None:
    old = [life(float(number), ready_at=number + 9.0) for number in range(20)]
    new = [life(100.0 + number, ready_at=101.0 + number) for number in range(NUM_LIVES)]
    assert stage_figures(Stage.ROLLOUT, [*new, *old], PastSteps(), PLATFORM).cold_start_s == 1.0


def test_only_the_replicas_of_the_stages_own_function_count() -> None:
    fused = replace(ROLLOUT, name="learner", stages=(Stage.LEARNER, Stage.PREFILL, Stage.ROLLOUT))
    own, beside = life(), life(function="learner", stages=fused.stages)
    assert lives_of((fused, ROLLOUT), Stage.ROLLOUT, [beside, own]) == (own,)
    assert lives_of((fused,), Stage.ROLLOUT, [beside, own]) == (beside,)
    assert lives_of((), Stage.ROLLOUT, [beside, own]) == ()
