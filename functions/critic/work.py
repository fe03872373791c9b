"""The work of a critic's step, micro-batch after micro-batch, as far as the budget allows.

Between two micro-batches the step can be cut: what it needs to go on is in its progress, the gradient so far included.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence

import torch
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.critic.config import CriticConfig
from functions.critic.rows import ValueRow
from functions.critic.value_loss import clipped_value_loss
from shared.training.aggregation import LossDenominators, aggregate
from shared.training.batching import MicroBatch, MiniBatch
from shared.training.forward import TrainedLogits, scatter_trained
from shared.training.gradient import clip_gradient, complete_gradient, full_gradient, set_gradient
from shared.training.optimizer import trainable_parameters
from shared.training.padding import pad_to_batch
from shared.training.passes import within_budget
from shared.training.progress import UpdateProgress
from shared.training.time_budget import Budget

LOSS = "critic/vf_loss"


class Work:
    """One call's part of a step. `at` says where the step stands and moves with it."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: AdamW,
        values_of: TrainedLogits,
        rows: Sequence[ValueRow],
        config: CriticConfig,
        budget: Budget,
        at: UpdateProgress,
    ) -> None:
        self.at = at
        self.num_passes = 0
        """Micro-batches that this call computed."""
        self._model = model
        self._optimizer = optimizer
        self._values_of = values_of
        self._rows = rows
        self._config = config
        self._budget = budget

    def train(self, updates: Sequence[MiniBatch]) -> bool:
        """Make the step's updates; False where the budget ended before the last of them."""
        at = self.at
        at.refuse_foreign_place(updates)
        try:
            set_gradient(self._model, at.gradient)
            at.gradient = {}
            while at.next_update < len(updates):
                if not self._sum_gradient(updates[at.next_update]):
                    at.gradient = full_gradient(self._model)
                    return False
                self._apply_gradient()
        finally:
            self._optimizer.zero_grad()
        return True

    def _sum_gradient(self, mini_batch: MiniBatch) -> bool:
        """Complete the gradient of one update; False where the budget ended before."""
        at = self.at
        denominators = LossDenominators.of(
            pad_to_batch([self._rows[index].loss_mask for indices in mini_batch for index in indices])
        )
        for indices in within_budget(self._rows, mini_batch[at.next_micro_batch :], self._budget, "training"):
            self._add_gradient(indices, denominators)
            at.next_micro_batch += 1
            self.num_passes += 1
        return at.next_micro_batch == len(mini_batch)

    def _add_gradient(self, indices: MicroBatch, denominators: LossDenominators) -> None:
        at, config = self.at, self._config
        part = [self._rows[index] for index in indices]
        values = scatter_trained(self._values_of(part)[:, 0].float(), part)
        loss_mask, old_values, returns = (
            pad_to_batch(arrays).to(values.device)
            for arrays in (
                [row.loss_mask for row in part],
                [row.old_values for row in part],
                [row.returns for row in part],
            )
        )
        losses = clipped_value_loss(values, old_values, returns, loss_mask, config.cliprange_value)
        loss = aggregate(losses.token_loss, loss_mask, config.loss_agg_mode, denominators)
        torch.autograd.backward(loss)
        at.terms[LOSS] = at.terms.get(LOSS, 0.0) + loss.item()
        at.sums.add(
            {
                "critic/vf_clipfrac": float((losses.is_clipped & loss_mask).sum()),
                "critic/vpred_mean": float(values.detach().double().sum()),
            },
            int(loss_mask.sum()),
        )

    def _apply_gradient(self) -> None:
        at, parameters = self.at, trainable_parameters(self._model).values()
        complete_gradient(parameters)
        grad_norm = clip_gradient(parameters, self._config.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        at.sums.add({**at.terms, "critic/grad_norm": grad_norm}, 1)
        at.next_update, at.next_micro_batch, at.terms = at.next_update + 1, 0, {}
