"""The section ``schedule``: its keys, what is refused, and the policy that comes of it."""

from typing import Any

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid
from controller.runs.config.schedule_policy import schedule_policy
from controller.scheduling.observations import SchedulePolicy

MINIMAL: dict[str, Any] = {
    "model.path": "m",
    "data.train_files": "t.jsonl",
    "reward.rule": "exact_match",
    "trainer.total_training_steps": 10,
}


def policy(**flat: Any) -> SchedulePolicy:
    return schedule_policy(load_config(MINIMAL | {name.replace("__", "."): value for name, value in flat.items()}))


def test_the_defaults_are_those_of_the_policy() -> None:
    assert policy() == SchedulePolicy()


def test_every_technique_has_a_switch() -> None:
    off = {f"schedule__{name}__enable": False for name in ("scaling", "migration", "locality", "holding", "probing")}
    found = policy(**off, schedule__prefill__mode="in_actor", schedule__assignment="in_order")
    assert (found.scaling, found.migration, found.locality, found.holding, found.probing) == (False,) * 5
    assert (found.prefill, found.assignment) == ("in_actor", "in_order")


def test_lambda_is_written_as_it_is_said() -> None:
    assert policy(schedule__scaling__lambda=0.2).lambda_ == policy(schedule__scaling__lambda_=0.2).lambda_ == 0.2
    nested = MINIMAL | {"schedule": {"scaling": {"lambda": 0.1}}}
    assert schedule_policy(load_config(nested)).lambda_ == 0.1


def test_a_forced_number_of_actors_is_part_of_it() -> None:
    assert policy(rollout__num_actors=3).num_actors == 3


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"schedule.assignment": "sorted"}, "schedule.assignment", "sorted_unequal"),
        ({"schedule.scaling.lambda": 1.5}, "schedule.scaling.lambda", "less than or equal to 1"),
        ({"schedule.migration.tau": 0}, "schedule.migration.tau", "greater than 0"),
        ({"schedule.length_window": 0}, "schedule.length_window", "greater than or equal to 1"),
        ({"schedule.prefill.mode": "remote"}, "schedule.prefill.mode", "disaggregated"),
        ({"schedule.scaling.min_actors": 4, "schedule.scaling.max_actors": 2}, "schedule.scaling.min_actors", "is 2"),
        ({"rollout.num_actors": 4, "schedule.scaling.max_actors": 2}, "rollout.num_actors", "bounds"),
        ({"rollout.num_actors": 4, "schedule.scaling.min_actors": 2}, "schedule.scaling.min_actors", "no effect"),
        ({"schedule.scaling.enable": False, "schedule.scaling.min_actors": 2}, "schedule.scaling.min_actors", "while"),
        ({"schedule.migration.enable": False, "schedule.migration.tau": 0.5}, "schedule.migration.tau", "no effect"),
        (
            {"schedule.holding": {"enable": False, "prewarm": False, "buffer_s": 3}},
            "schedule.holding.buffer_s",
            "nothing is held",
        ),
        ({"schedule.migration.taus": 0.5}, "schedule.migration.taus", "unknown key"),
    ],
)
def test_what_cannot_hold_is_refused(document: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(MINIMAL | document)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert words in problem.reason
    assert problem.suggestion
