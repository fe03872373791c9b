"""What a run came to, read off its history."""

from dataclasses import asdict
from typing import Any

from controller.runs.ledger import StageCost
from controller.runs.summary import summarise, total_ledger


def line(kind: str, step: int, time: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "step": step, "time": time, **more}


def ledger(purpose: str, **seconds: float) -> dict[str, Any]:
    return {"ledger": {name: asdict(StageCost(busy_s=busy)) | {"purpose": purpose} for name, busy in seconds.items()}}


HISTORY = [
    line("init", 0, 1005.0, **ledger("init", learner=1)),
    line("eval", 0, 1010.0, accuracy=0.35, **ledger("eval", rollout=4, reward=1)),
    line("step", 0, 1020.0, **ledger("train", rollout=5, learner=2)),
    line("eval", 1, 1030.0, accuracy=0.5, **ledger("eval", rollout=4)),
    line("step", 1, 1040.0, **ledger("train", rollout=6, learner=3)),
    line("eval", 2, 1050.0, accuracy=0.9, **ledger("eval", rollout=4)),
    line("checkpoint", 1, 1031.0, folder="/checkpoints/global_step_1"),
    line("checkpoint", 2, 1051.0, folder="/checkpoints/global_step_2"),
]


def test_a_finished_run() -> None:
    found = summarise(HISTORY, started_at=1000.0)
    assert found["accuracy_before"] == 0.35
    assert found["accuracy_after"] == 0.9
    assert found["steps"] == 2
    # To the end of the last step: the evaluation after it is no training.
    assert found["train_s"] == 40.0
    assert found["checkpoint"] == "/checkpoints/global_step_2"
    assert found["ledger"] == total_ledger(HISTORY)


def test_costs_are_summed_by_purpose_and_function() -> None:
    busy = {
        purpose: {name: cost["busy_s"] for name, cost in costs.items()}
        for purpose, costs in total_ledger(HISTORY).items()
    }
    assert busy == {
        "init": {"learner": 1},
        "eval": {"rollout": 12, "reward": 1},
        "train": {"rollout": 11, "learner": 5},
    }


def test_a_run_without_anything_yet() -> None:
    assert summarise([], started_at=None) == {
        "accuracy_before": None,
        "accuracy_after": None,
        "steps": 0,
        "train_s": None,
        "ledger": {},
        "checkpoint": None,
    }


def test_an_evaluation_before_training_is_not_one_after_it() -> None:
    found = summarise(HISTORY[:2], started_at=1000.0)
    assert (found["accuracy_before"], found["accuracy_after"]) == (0.35, None)


def test_without_an_evaluation_before_training_there_is_no_accuracy_before() -> None:
    found = summarise(HISTORY[2:], started_at=1000.0)
    assert (found["accuracy_before"], found["accuracy_after"]) == (None, 0.9)
