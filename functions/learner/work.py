"""The work of a step, micro-batch after micro-batch, as far as the budget allows.

Every loop goes in rounds of one micro-batch per rank. Between two rounds the step can be cut: what it needs to go on
is in its progress, the gradient so far included.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.objective import micro_batch_loss
from functions.learner.policy_logprobs import policy_logprobs
from functions.learner.ranks.reduction import reduced
from functions.learner.ranks.rounds import Rounds
from functions.learner.ranks.sharing import Share
from functions.learner.rows import TrainRow
from functions.learner.train_batch import MicroBatchTensors, TrainBatch
from shared.training.aggregation import LossDenominators
from shared.training.batching import MicroBatch, MiniBatch
from shared.training.forward import TrainedLogits
from shared.training.gradient import clip_gradient, complete_gradient, full_gradient, set_gradient
from shared.training.metric_sums import MetricSums
from shared.training.optimizer import trainable_parameters
from shared.training.progress import UpdateProgress


class Work:
    """One call's part of a step. `at` says where the step stands and moves with it."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: AdamW,
        logits_of: TrainedLogits,
        rows: Sequence[TrainRow],
        config: LearnerConfig,
        rounds: Rounds,
        at: UpdateProgress,
    ) -> None:
        self.at = at
        self._model = model
        self._optimizer = optimizer
        self._logits_of = logits_of
        self._rows = rows
        self._config = config
        self._rounds = rounds

    @property
    def num_passes(self) -> int:
        """Micro-batches that this call computed."""
        return self._rounds.num_passes

    def score(self, micro_batches: Sequence[MicroBatch]) -> bool:
        """Complete the policy's own logprobs `[B, T]`; False where the budget ended before."""
        at = self.at
        made, at.num_scored = policy_logprobs(
            self._logits_of, self._rows, micro_batches, self._config.temperature, self._rounds, start=at.num_scored
        )
        at.old_logprobs = made if at.old_logprobs is None else at.old_logprobs + made
        return at.num_scored == len(micro_batches)

    def train(self, batch: TrainBatch, updates: Sequence[MiniBatch], old_logprobs: Tensor | None) -> bool:
        """Make the step's updates; False where the budget ended before the last of them."""
        at = self.at
        at.refuse_foreign_place(updates)
        try:
            set_gradient(self._model, at.gradient)
            at.gradient = {}
            while at.next_update < len(updates):
                if not self._sum_gradient(batch, updates[at.next_update], old_logprobs):
                    at.gradient = full_gradient(self._model)
                    return False
                self._apply_gradient()
        finally:
            self._optimizer.zero_grad()
        return True

    def _sum_gradient(self, batch: TrainBatch, mini_batch: MiniBatch, old_logprobs: Tensor | None) -> bool:
        """Complete the gradient of one update; False where the budget ended before."""
        at = self.at
        loss_mask = batch.loss_mask[[index for indices in mini_batch for index in indices]]
        denominators = LossDenominators.of(loss_mask, self._config.loss.max_completion_tokens)
        for share, end in self._rounds.through(mini_batch, start=at.next_micro_batch, kind="training"):
            self._add_gradient(batch, share, old_logprobs, denominators)
            at.next_micro_batch = end
        return at.next_micro_batch == len(mini_batch)

    def _add_gradient(
        self, batch: TrainBatch, share: Share, old_logprobs: Tensor | None, denominators: LossDenominators
    ) -> None:
        rows = [batch.rows[index] for index in share.indices]
        tensors = batch.select(share.indices, old_logprobs, self._model.device)
        if not share.counts:
            rows, tensors = _without_loss(rows, tensors)
        part = micro_batch_loss(self._logits_of, rows, tensors, denominators, self._config)
        torch.autograd.backward(part.loss)
        sums = MetricSums()
        terms = part.add_to(sums)
        reduced(self._rounds.ranks, sums, terms).add_to(self.at.sums, self.at.terms)

    def _apply_gradient(self) -> None:
        at, parameters = self.at, trainable_parameters(self._model).values()
        complete_gradient(parameters)
        grad_norm = clip_gradient(parameters, self._config.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        at.sums.add({**at.terms, "actor/grad_norm": grad_norm}, 1)
        at.next_update, at.next_micro_batch, at.terms = at.next_update + 1, 0, {}


def _without_loss(rows: Sequence[TrainRow], tensors: MicroBatchTensors) -> tuple[list[TrainRow], MicroBatchTensors]:
    """The same rows with nothing to train on."""
    emptied = [replace(row, loss_mask=torch.zeros(row.num_tokens, dtype=torch.bool).numpy()) for row in rows]
    return emptied, replace(tensors, loss_mask=torch.zeros_like(tensors.loss_mask))
