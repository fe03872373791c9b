"""What one micro-batch adds to the loss of its mini-batch, and to the step's metrics.

Shapes: b rows, t longest completion of the micro-batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.config import LearnerConfig
from functions.learner.correction import rollout_correction
from functions.learner.kl.estimators import estimate_kl
from functions.learner.loss_config import LossConfig
from functions.learner.mismatch import rollout_mismatch
from functions.learner.policy_loss import POLICY_LOSSES
from functions.learner.policy_loss.inputs import PolicyLossInputs
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
    terms: Mapping[str, Tensor]
    """Parts of it by metric name, before their coefficients; they add up over the mini-batch too."""
    num_tokens: int
    token_sums: Mapping[str, Tensor]
    maxima: Mapping[str, Tensor]

    def add_to(self, sums: MetricSums) -> dict[str, float]:
        """Adds the token metrics to a step's and returns the terms, in one read from the device."""
        values = [*self.terms.values(), *self.token_sums.values(), *self.maxima.values()]
        numbers = iter(torch.stack([value.detach().double() for value in values]).tolist())
        terms = {name: next(numbers) for name in self.terms}
        sums.add({name: next(numbers) for name in self.token_sums}, self.num_tokens)
        sums.add_maxima({name: next(numbers) for name in self.maxima})
        return terms


def micro_batch_loss(
    logits_of: TrainedLogits,
    rows: Sequence[TrainRow],
    tensors: MicroBatchTensors,
    denominators: LossDenominators,
    config: LearnerConfig,
) -> MicroBatchLoss:
    """`aggregate(w · policy loss) − entropy_coeff · aggregate(entropy) + kl_loss_coef · aggregate(KL)`.

    Without old logprobs the learner's own are taken, detached: the ratio is then 1 and its gradient that of the
    logprob, as in the first update on fresh rollouts.
    """
    loss_config = config.loss
    trains_entropy = loss_config.entropy_coeff != 0.0
    learner = logprobs_and_entropy(logits_of, rows, config.temperature, entropy_gradient=trains_entropy)
    loss_mask = tensors.loss_mask
    old_logprobs = learner.logprobs.detach() if tensors.old_logprobs is None else tensors.old_logprobs
    mismatch = rollout_mismatch(old_logprobs, tensors.rollout_logprobs, loss_mask)
    correction = rollout_correction(old_logprobs, tensors.rollout_logprobs, loss_mask, loss_config)
    policy = POLICY_LOSSES[loss_config.loss_mode](
        PolicyLossInputs(
            learner_logprobs=learner.logprobs,
            old_logprobs=old_logprobs,
            advantages=tensors.advantages,
            loss_mask=loss_mask,
        ),
        loss_config,
    )

    def aggregated(token_values: Tensor) -> Tensor:
        return aggregate(token_values, loss_mask, loss_config.loss_agg_mode, denominators)

    pg_loss = aggregated(policy.token_loss if correction is None else policy.token_loss * correction.weights)
    loss, terms = pg_loss, {"actor/pg_loss": pg_loss}
    if trains_entropy:
        loss = loss - loss_config.entropy_coeff * aggregated(learner.entropy)
    token_kl = _token_kl(learner.logprobs, tensors, loss_config)
    if token_kl is not None:
        kl_loss = aggregated(token_kl)
        loss, terms["actor/kl_loss"] = loss + loss_config.kl_loss_coef * kl_loss, kl_loss
    return MicroBatchLoss(
        loss=loss,
        terms=terms,
        num_tokens=int(loss_mask.sum()),
        token_sums={
            **policy.token_sums,
            **mismatch.token_sums,
            **({} if correction is None else correction.token_sums),
            "actor/entropy": learner.entropy.detach().sum(),
        },
        maxima=mismatch.maxima,
    )


def _token_kl(learner_logprobs: Tensor, tensors: MicroBatchTensors, config: LossConfig) -> Tensor | None:
    """The KL estimate of every token, None where the loss has no such term. [b, t]"""
    if config.kl_loss_type is None or tensors.reference_logprobs is None:
        return None
    return estimate_kl(learner_logprobs, tensors.reference_logprobs, tensors.loss_mask, config.kl_loss_type)
