from dataclasses import replace
from typing import Any

import pytest
import torch

from shared.training.errors import DamagedState
from shared.training.progress import UpdateProgress
from tests.unit.functions.learner.builders import make_config, ragged_rows, with_numbers
from tests.unit.functions.learner.learner import Learner, Passes

MANY_UPDATES = make_config(ppo_epochs=2, ppo_mini_batch_size=2, max_token_len=30, weight_decay=0.1)
PENALISED = make_config(
    kl_penalty="kl",
    kl_coef=0.3,
    kl_controller="adaptive",
    ppo_epochs=2,
    ppo_mini_batch_size=2,
    max_token_len=30,
    clip_ratio_c=3.0,
)
PLAN = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
NUM_PASSES = 12
"""Four for the old logprobs, then eight in four updates."""


def test_a_step_is_a_known_number_of_passes() -> None:
    result = Learner(MANY_UPDATES).step(ragged_rows(), packing_plan=PLAN, budget=Passes(NUM_PASSES))

    assert (result.num_passes, result.num_updates, result.progress) == (NUM_PASSES, 4, None)


@pytest.mark.parametrize("first_passes", [0, 3, 5, 8, 11])
def test_a_step_cut_anywhere_and_moved_is_bit_equal_to_one_in_a_piece(first_passes: int) -> None:
    rows = ragged_rows()
    whole = Learner(MANY_UPDATES)
    expected = whole.step(rows, packing_plan=PLAN)
    cut = Learner(MANY_UPDATES)

    first = cut.step(rows, packing_plan=PLAN, budget=Passes(first_passes))
    assert first.progress is not None
    assert all(parameter.grad is None for parameter in cut.model.parameters())
    cut = cut.moved_to_another_machine()
    second = cut.step(rows, progress=UpdateProgress.from_blob(first.progress.to_blob()))

    assert (first.num_passes, second.num_passes) == (first_passes, NUM_PASSES - first_passes)
    assert second.num_updates == 4
    assert second.progress is None
    assert second.metrics == expected.metrics
    assert torch.equal(cut.weights(), whole.weights())


def test_a_step_of_single_passes_is_bit_equal_too() -> None:
    rows = ragged_rows()
    whole, cut = Learner(PENALISED), Learner(PENALISED)
    expected = whole.step(rows := with_numbers(rows, "reference_logprobs", "values"))
    result = cut.step(rows, budget=Passes(1))
    num_segments = 1
    while result.progress is not None:
        cut = cut.moved_to_another_machine()
        result = cut.step(rows, budget=Passes(1), progress=UpdateProgress.from_blob(result.progress.to_blob()))
        num_segments += 1

    assert num_segments == expected.num_passes
    assert (result.metrics, result.next_kl_coef) == (expected.metrics, expected.next_kl_coef)
    assert torch.equal(cut.weights(), whole.weights())


def test_a_cut_between_updates_has_no_gradient_and_one_within_has() -> None:
    results = [
        Learner(MANY_UPDATES).step(ragged_rows(), packing_plan=PLAN, budget=Passes(passes)).progress
        for passes in (4, 5, 6)
    ]

    assert [bool(progress and progress.gradient) for progress in results] == [False, True, False]
    assert [(progress.next_update, progress.next_micro_batch) for progress in results if progress] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]


def test_progress_can_be_gone_on_from_twice() -> None:
    learner = Learner(make_config(max_token_len=30))
    progress = learner.step(ragged_rows(), budget=Passes(1)).progress
    twin = learner.moved_to_another_machine()

    for each in (learner, twin):
        each.step(ragged_rows(), progress=progress)

    assert torch.equal(learner.weights(), twin.weights())


def test_nobody_is_asked_after_the_last_micro_batch() -> None:
    assert Learner(make_config()).step(ragged_rows(), budget=Passes(1)).progress is None


def test_a_stored_packing_plan_is_followed() -> None:
    rows = ragged_rows()
    plan = [[[index] for index in reversed(range(len(rows)))]]
    result = Learner(make_config()).step(rows, packing_plan=plan)

    assert (result.packing_plan, result.num_passes) == (plan, len(rows))
    for foreign in ([[[len(rows)]]], [[[0], [0]]], [[[-1]]]):
        with pytest.raises(DamagedState, match="another batch"):
            Learner(make_config()).step(rows, packing_plan=foreign)


@pytest.mark.parametrize(
    "change",
    [
        {"next_update": 5},
        {"next_micro_batch": 2},
        {"old_logprobs": torch.zeros(3, 3)},
        {"packing_plan": [[[99]]]},
        {"gradient": {"lm_head.weight": torch.zeros(3, 3)}},
        {"gradient": {"other.weight": torch.zeros(3, 3)}},
    ],
)
def test_the_progress_of_another_batch_is_refused(change: dict[str, Any]) -> None:
    learner = Learner(MANY_UPDATES)
    progress = learner.step(ragged_rows(), packing_plan=PLAN, budget=Passes(6)).progress
    assert progress is not None

    with pytest.raises(DamagedState, match=r"another batch|does not fit this model"):
        learner.step(ragged_rows(), progress=replace(progress, **change))
