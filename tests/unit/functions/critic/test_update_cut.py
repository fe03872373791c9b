"""A value update that is cut between two micro-batches, against one in a piece."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.critic.config import CriticConfig
from functions.critic.update import ValueUpdateResult, update_values
from shared.training.errors import DamagedState
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob
from shared.training.progress import UpdateProgress
from tests.unit.functions.critic.test_update import value_model, value_rows, weights_of
from tests.unit.functions.learner.builders import tiny_model
from tests.unit.functions.learner.learner import Passes

MANY_UPDATES = CriticConfig(
    lr=1e-2, total_steps=10, cliprange_value=0.4, ppo_epochs=2, ppo_mini_batch_size=2, max_token_len=16
)
NUM_UPDATES, NUM_PASSES = 4, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(path)
    return path


class Critic:
    """A value model and its optimizer, as they stand before a step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model: PreTrainedModel = value_model(folder)
        self.optimizer: AdamW = build_optimizer(self.model, MANY_UPDATES)

    def step(self, **options: Any) -> ValueUpdateResult:
        return update_values(self.model, self.optimizer, value_rows(), MANY_UPDATES, step=0, **options)

    def moved_to_another_machine(self) -> "Critic":
        other = Critic(self.folder)
        other.model.load_state_dict(self.model.state_dict())
        load_optimizer_state(other.optimizer, other.model, optimizer_state_to_blob(self.optimizer, self.model))
        return other


def test_a_step_is_a_known_number_of_passes_and_nobody_is_asked_after_the_last(folder: Path) -> None:
    result = Critic(folder).step(budget=Passes(NUM_PASSES))

    assert (result.num_passes, result.num_updates, result.progress) == (NUM_PASSES, NUM_UPDATES, None)


@pytest.mark.parametrize("first_passes", range(NUM_PASSES))
def test_a_step_cut_anywhere_and_moved_is_bit_equal_to_one_in_a_piece(folder: Path, first_passes: int) -> None:
    whole, cut = Critic(folder), Critic(folder)
    expected = whole.step()

    first = cut.step(budget=Passes(first_passes))
    assert first.progress is not None
    assert first.metrics == {}
    assert all(parameter.grad is None for parameter in cut.model.parameters())
    cut = cut.moved_to_another_machine()
    second = cut.step(progress=UpdateProgress.from_blob(first.progress.to_blob()))

    assert (first.num_passes, second.num_passes) == (first_passes, NUM_PASSES - first_passes)
    assert (second.num_updates, second.progress) == (NUM_UPDATES, None)
    assert second.metrics == expected.metrics
    assert torch.equal(weights_of(cut.model), weights_of(whole.model))


def test_a_cut_between_updates_has_no_gradient_and_one_within_has(folder: Path) -> None:
    places = [Critic(folder).step(budget=Passes(passes)).progress for passes in (0, 1, 2)]

    assert [bool(at and at.gradient) for at in places] == [False, True, False]
    assert [(at.next_update, at.next_micro_batch) for at in places if at] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize(
    "change",
    [
        {"next_update": 5},
        {"next_micro_batch": 3},
        {"packing_plan": [[[99]]]},
        {"gradient": {"model.norm.weight": torch.zeros(3, 3)}},
        {"gradient": {"other.weight": torch.zeros(3, 3)}},
    ],
)
def test_the_progress_of_another_batch_is_refused(folder: Path, change: dict[str, Any]) -> None:
    critic = Critic(folder)
    progress = critic.step(budget=Passes(2)).progress
    assert progress is not None

    with pytest.raises(DamagedState, match=r"another batch|does not fit this model"):
        critic.step(progress=replace(progress, **change))
