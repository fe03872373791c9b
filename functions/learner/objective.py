"""What one micro-batch adds to the loss of its mini-batch, and to the step's metrics.

Shapes: b rows, t longest completion of the micro-batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.config import LearnerConfig
from functions.learner.loss import clipped_policy_loss
from functions.learner.mismatch import rollout_mismatch, truncated_importance_weights
from functions.learner.rows import TrainRow
from functions.learner.train_batch import MicroBatchTensors
from shared.training.aggregation import LossDenominators, aggregate
from shared.training.forward import TrainedLogits, logprobs_and_entropy
from shared.training.metric_sums import MetricSums


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchLoss:
    """Scalars of a micro-batch, on the model's device."""

    loss: Tensor
    """To call backward on; the mini-batch's loss is the sum over its micro-batches."""
    pg_loss: Tensor
    """The policy term of it."""
    num_tokens: int
    token_sums: Mapping[str, Tensor]
    maxima: Mapping[str, Tensor]

    def add_to(self, sums: MetricSums) -> float:
        """Adds the token metrics to a step's and returns the policy term, in one read from the device."""
        values = [self.pg_loss, *self.token_sums.values(), *self.maxima.values()]
        numbers: list[float] = torch.stack([value.detach().double() for value in values]).tolist()
        pg_loss = numbers.pop(0)
        sums.add(dict(zip(self.token_sums, numbers, strict=False)), self.num_tokens)
        sums.add_maxima(dict(zip(self.maxima, numbers[len(self.token_sums) :], strict=True)))
        return pg_loss


def micro_batch_loss(
    logits_of: TrainedLogits,
    rows: Sequence[TrainRow],
    tensors: MicroBatchTensors,
    denominators: LossDenominators,
    config: LearnerConfig,
) -> MicroBatchLoss:
    """`aggregate(policy loss) − entropy_coeff · aggregate(entropy)`.

    Without old logprobs the learner's own are taken, detached: the ratio is then 1 and its gradient that of the
    logprob, as in the first update on fresh rollouts.
    """
    trains_entropy = config.entropy_coeff != 0.0
    learner = logprobs_and_entropy(logits_of, rows, config.temperature, entropy_gradient=trains_entropy)
    loss_mask = tensors.loss_mask
    old_logprobs = learner.logprobs.detach() if tensors.old_logprobs is None else tensors.old_logprobs
    mismatch = rollout_mismatch(old_logprobs, tensors.rollout_logprobs, loss_mask)
    weights, weight_sums = None, {}
    if config.rollout_is_threshold is not None:
        weights = truncated_importance_weights(
            old_logprobs, tensors.rollout_logprobs, loss_mask, config.rollout_is_threshold
        )
        weight_sums = {"rollout_corr/rollout_is_mean": weights.sum()}
    policy = clipped_policy_loss(
        learner_logprobs=learner.logprobs,
        old_logprobs=old_logprobs,
        advantages=tensors.advantages,
        loss_mask=loss_mask,
        clip_ratio_low=config.clip_ratio_low,
        clip_ratio_high=config.clip_ratio_high,
        clip_ratio_c=config.clip_ratio_c,
        importance_weights=weights,
    )
    pg_loss = aggregate(policy.token_loss, loss_mask, config.loss_agg_mode, denominators)
    loss = pg_loss
    if trains_entropy:
        loss = loss - config.entropy_coeff * aggregate(learner.entropy, loss_mask, config.loss_agg_mode, denominators)
    return MicroBatchLoss(
        loss=loss,
        pg_loss=pg_loss,
        num_tokens=int(loss_mask.sum()),
        token_sums={
            **policy.token_sums,
            **mismatch.token_sums,
            **weight_sums,
            "actor/entropy": learner.entropy.detach().sum(),
        },
        maxima=mismatch.maxima,
    )
