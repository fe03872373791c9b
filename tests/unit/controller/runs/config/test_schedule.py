"""A learning rate and the run's number of steps."""

from typing import Any

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.schedule import schedule_problems
from tests.unit.controller.runs.config.test_load import MINIMAL


def fields_refused(total_steps: int, **flat: Any) -> list[str]:
    config = load_config(MINIMAL | {name.replace("__", "."): value for name, value in flat.items()})
    return [problem.field for problem in schedule_problems(config, total_steps)]


def test_without_a_warm_up_one_step_is_enough() -> None:
    assert fields_refused(1) == []
    assert fields_refused(1, actor__optim__lr_scheduler_type="linear") == []


def test_a_constant_learning_rate_is_reached_by_the_last_step() -> None:
    assert fields_refused(5, actor__optim__lr_warmup_steps=5) == []
    assert fields_refused(5, actor__optim__lr_warmup_steps=6) == ["actor.optim.lr_warmup_steps"]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_learning_rate_that_falls_has_a_step_to_fall_in(schedule: str) -> None:
    falling = {"actor__optim__lr_scheduler_type": schedule}
    assert fields_refused(5, actor__optim__lr_warmup_steps=4, **falling) == []
    assert fields_refused(5, actor__optim__lr_warmup_steps=5, **falling) == ["actor.optim.lr_warmup_steps"]


def test_the_critics_learning_rate_is_held_to_the_same() -> None:
    critic = {
        "algorithm__adv_estimator": "gae",
        "critic__optim__lr_warmup_steps": 5,
        "critic__optim__lr_scheduler_type": "cosine",
    }
    assert fields_refused(6, **critic) == []
    assert fields_refused(5, **critic) == ["critic.optim.lr_warmup_steps"]
    assert fields_refused(5, actor__optim__lr_warmup_steps=6, **critic) == [
        "actor.optim.lr_warmup_steps",
        "critic.optim.lr_warmup_steps",
    ]
