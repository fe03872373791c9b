"""What is due between two steps."""

from typing import Any

import pytest

from controller.runs.config.trainer import TrainerConfig
from controller.runs.due import checkpoint_due, evaluation_due, is_finished
from controller.runs.manifest import Checkpointed, Manifest
from tests.fakes.sampled import POLICY

TOTAL = 10


def head(step: int, *, first_step: int = 0, evaluated: tuple[int, ...] = (), written: tuple[int, ...] = ()) -> Manifest:
    return Manifest(
        step=step,
        first_step=first_step,
        data_cursor=0,
        policy=POLICY,
        state=None,
        run_seed=1,
        evaluated=evaluated,
        checkpoints=tuple(Checkpointed(step=at, folder="f", policy=POLICY, state=None) for at in written),
    )


def steps_of_evaluations(**trainer: Any) -> list[int]:
    config = TrainerConfig(**trainer)
    return [
        step for step in range(TOTAL + 1) if evaluation_due(head(step), config, total_steps=TOTAL, has_heldout=True)
    ]


def steps_of_checkpoints(**trainer: Any) -> list[int]:
    config = TrainerConfig(**trainer)
    return [step for step in range(TOTAL + 1) if checkpoint_due(head(step), config, total_steps=TOTAL)]


def test_evaluations_come_before_the_first_step_every_so_often_and_at_the_end() -> None:
    assert steps_of_evaluations() == [0, 10]
    assert steps_of_evaluations(val_before_train=False) == [10]
    assert steps_of_evaluations(test_freq=4) == [0, 4, 8, 10]
    assert steps_of_evaluations(test_freq=1, val_before_train=False) == list(range(1, 11))


def test_nothing_is_evaluated_twice_or_without_rows() -> None:
    assert not evaluation_due(head(10, evaluated=(0, 10)), TrainerConfig(), total_steps=TOTAL, has_heldout=True)
    assert not evaluation_due(head(10), TrainerConfig(), total_steps=TOTAL, has_heldout=False)


def test_checkpoints_come_every_so_often_and_at_the_end_never_at_the_beginning() -> None:
    assert steps_of_checkpoints() == [10]
    assert steps_of_checkpoints(save_freq=4) == [4, 8, 10]
    began = head(4, first_step=4)
    assert not checkpoint_due(began, TrainerConfig(save_freq=4), total_steps=TOTAL), "the one that it began from"
    assert not checkpoint_due(head(8, written=(8,)), TrainerConfig(save_freq=4), total_steps=TOTAL)


@pytest.mark.parametrize(
    ("there", "finished"),
    [
        (head(9, evaluated=(9,), written=(9,)), False),
        (head(10, evaluated=(10,), written=(10,)), True),
        (head(10, evaluated=(10,)), False),
        (head(10, written=(10,)), False),
    ],
)
def test_a_run_is_finished_when_nothing_is_due_any_more(there: Manifest, finished: bool) -> None:
    assert is_finished(there, TrainerConfig(), total_steps=TOTAL, has_heldout=True) is finished
