"""From a line of history to a point."""

import pytest

from controller.runs.trackers.points import TRL_NAMES, Point, point_of

COST = {"usd": 0.5, "cpu_seconds": 3.0, "gpu_seconds": 1.0, "purpose": "train"}


def test_a_step_is_where_its_policy_version_is_with_both_vocabularies_and_its_cost() -> None:
    line = {
        "kind": "step",
        "step": 3,
        "time": 7.0,
        "metrics": {"critic/score/mean": 0.5, "response_length/mean": 12.0, "frac_reward_zero_std": 0.25},
        "ledger": {"rollout": COST, "learner": COST},
    }
    assert point_of(line) == Point(
        kind="step",
        step=4,
        time=7.0,
        metrics={
            "critic/score/mean": 0.5,
            "reward": 0.5,
            "response_length/mean": 12.0,
            "completions/mean_length": 12.0,
            "frac_reward_zero_std": 0.25,
            "cost/usd": 1.0,
            "cost/cpu_seconds": 6.0,
            "cost/gpu_seconds": 2.0,
        },
    )


def test_an_evaluation_is_where_its_policy_version_is() -> None:
    line = {"kind": "eval", "step": 4, "time": 8.0, "accuracy": 0.75, "metrics": {"val-core/reward/mean@1": 0.75}}
    found = point_of(line)
    assert found is not None
    assert (found.kind, found.step) == ("eval", 4)
    assert found.metrics == {"val-core/reward/mean@1": 0.75, "val/accuracy": 0.75, "eval_reward": 0.75}


@pytest.mark.parametrize("kind", ["init", "checkpoint", "resume"])
def test_what_measured_nothing_is_no_point(kind: str) -> None:
    assert point_of({"kind": kind, "step": 0, "time": 1.0}) is None


def test_no_alias_stands_for_another() -> None:
    assert not TRL_NAMES.keys() & set(TRL_NAMES.values())
