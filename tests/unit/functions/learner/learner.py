"""A model in training, for tests of its updates."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.rows import TrainRow
from functions.learner.update import UpdateResult, update_policy
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob
from shared.training.time_budget import PassKind
from tests.unit.functions.learner.builders import tiny_model


class Learner:
    """A model and its optimizer, as they stand before a step."""

    def __init__(self, config: LearnerConfig, **sizes: Any) -> None:
        self.config = config
        self.model: PreTrainedModel = tiny_model(**sizes)
        self.optimizer: AdamW = build_optimizer(self.model, config)

    def step(
        self,
        rows: list[TrainRow],
        step: int = 0,
        **options: Any,
    ) -> UpdateResult:
        return update_policy(self.model, self.optimizer, rows, self.config, step, **options)

    def weights(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])

    def moved_to_another_machine(self) -> "Learner":
        other = Learner(self.config)
        other.model.load_state_dict(self.model.state_dict())
        load_optimizer_state(other.optimizer, other.model, optimizer_state_to_blob(self.optimizer, self.model))
        return other


class Passes:
    """A budget of so many micro-batches."""

    def __init__(self, num_passes: int) -> None:
        self.left = num_passes

    def fits(self, kind: PassKind, num_tokens: int) -> bool:
        assert num_tokens > 0
        self.left -= 1
        return self.left >= 0

    def measure(self, kind: PassKind, num_tokens: int) -> AbstractContextManager[None]:
        return nullcontext()
