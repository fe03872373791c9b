"""What is read of the latest steps."""

from typing import Any

from controller.runs.past_steps import (
    MEAN_TOKENS,
    NUM_STEPS,
    PER_ANSWER_TOKEN,
    PastSteps,
    gap_metric,
    load_metric,
    past_steps,
    reload_metric,
)
from shared.contracts.stage import Stage


def step(**metrics: float) -> dict[str, Any]:
    return {"kind": "step", "metrics": {name.replace("__", "/"): value for name, value in metrics.items()}}


def test_a_run_that_has_done_nothing_has_no_past() -> None:
    assert past_steps([]) == past_steps([{"kind": "init"}, {"kind": "eval", "metrics": {}}]) == PastSteps()


def test_times_are_by_verls_names_without_their_prefix() -> None:
    past = past_steps([step(timing_s__gen=1.0, timing_s__compute__rollout=0.5, actor__loss=9.0), {"kind": "eval"}])
    assert past.timings_s == ({"gen": 1.0, "compute/rollout": 0.5},)


def test_the_newest_stand_last_and_of_many_only_some_count() -> None:
    past = past_steps([step(timing_s__gen=float(number)) for number in range(NUM_STEPS + 3)])
    assert [times["gen"] for times in past.timings_s] == [float(number) for number in range(3, NUM_STEPS + 3)]


def test_gaps_and_loads_are_by_stage_and_some_steps_have_none() -> None:
    lines = [
        {"kind": "step", "metrics": {gap_metric(Stage.ROLLOUT): 2.0}},
        {"kind": "step", "metrics": {}},
        {
            "kind": "step",
            "metrics": {
                gap_metric(Stage.ROLLOUT): 3.0,
                load_metric(Stage.LEARNER): 0.5,
                reload_metric(Stage.LEARNER): 0.25,
            },
        },
    ]
    past = past_steps(lines)
    assert past.gaps_s == {Stage.ROLLOUT: (2.0, 3.0)}
    assert past.loads_s == {Stage.LEARNER: (0.5,)}
    assert past.reloads_s == {Stage.LEARNER: (0.25,)}


def test_lengths_are_those_of_the_latest_step_that_says_so() -> None:
    lines = [{"kind": "step", "metrics": {MEAN_TOKENS: value, PER_ANSWER_TOKEN: 2 * value}} for value in (10.0, 20.0)]
    past = past_steps([*lines, {"kind": "step", "metrics": {}}])
    assert (past.mean_tokens, past.per_answer_token) == (20.0, 40.0)
