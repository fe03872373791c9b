"""One step of the learner: a batch of rows in, a changed model out.

    rows ─▶ advantages ─▶ mini-batches ─▶ micro-batches ─▶ logprobs ─▶ loss ─▶ gradient ─▶ optimizer update
            (groups)      (one update      (one forward                        (summed over
                           each)            and backward)                       the mini-batch)

Deterministic: rows are sorted first, nothing is drawn at random, and dropout is off, for the ratio compares
logprobs of two passes over the same weights. On CPU, with the same number of threads, a replay gives the same
bits.

Shapes: B rows, T longest completion.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.objective import micro_batch_loss
from functions.learner.progress import UpdateProgress
from functions.learner.rows import TrainRow
from functions.learner.train_batch import TrainBatch, prepare_batch
from shared.training.aggregation import LossDenominators
from shared.training.batching import MiniBatch, pack_micro_batches, split_mini_batches
from shared.training.errors import DamagedState
from shared.training.forward import TrainedLogits, completion_logprobs, trained_logits
from shared.training.gradient import clip_gradient, complete_gradient
from shared.training.metric_sums import MetricSums
from shared.training.optimizer import configure, trainable_parameters
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.schedule import learning_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What a step did, or did so far."""

    metrics: dict[str, float]
    num_updates: int
    """Optimizer updates of this step that the model now contains."""
    packing_plan: list[MiniBatch]
    """Numbers of the sorted rows in every micro-batch of every mini-batch; each epoch goes through all of it."""
    progress: UpdateProgress | None
    """How to go on; None when the step is complete."""


def never() -> bool:
    """A `should_stop` that lets the step run to its end."""
    return False


def update_policy(
    model: PreTrainedModel,
    optimizer: AdamW,
    rows: Sequence[TrainRow],
    config: LearnerConfig,
    step: int,
    should_stop: Callable[[], bool] = never,
    progress: UpdateProgress | None = None,
) -> UpdateResult:
    """Trains the model in place on one batch, given in any order.

    `should_stop` is asked between updates only, so every call makes at least one. The rest of the step is then
    made by a call with the same arguments, the weights and optimizer state that this one left, and its `progress`;
    such calls together are bit-equal to a single one.

    A step of one update takes the learner's own logprobs, detached, as the old ones: they are those of the policy
    that sampled, and it saves a forward pass. A longer step computes them once, before its first update.

    Raises InvalidRows, MissingReward, GroupTooSmall and DamagedState before anything has changed. Raises
    NonFiniteGradient without applying that update; earlier ones of the call remain, so the caller drops the model.
    """
    share_prompts = supports_prompt_sharing(model)
    batch = prepare_batch(rows, config, model.get_input_embeddings().weight.shape[0])
    plan = _packing_plan(batch, config, share_prompts)
    updates = plan * config.ppo_epochs
    num_updates, old_logprobs, sums = _resume(progress, batch, len(updates))
    lr = learning_rate(config, step)
    configure(optimizer, config, lr)
    model.eval()
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        if old_logprobs is None and len(updates) > 1:
            old_logprobs = _old_logprobs(logits_of, batch, plan, config)
        while num_updates < len(updates):
            _apply_update(model, optimizer, logits_of, batch, old_logprobs, updates[num_updates], config, sums)
            num_updates += 1
            if num_updates < len(updates) and should_stop():
                break
    rest = None
    if num_updates < len(updates) and old_logprobs is not None:
        rest = UpdateProgress(next_update=num_updates, old_logprobs=old_logprobs, sums=sums)
    return UpdateResult(
        metrics={**batch.metrics, "actor/lr": lr, **sums.reduce()},
        num_updates=num_updates,
        packing_plan=plan,
        progress=rest,
    )


def _packing_plan(batch: TrainBatch, config: LearnerConfig, share_prompts: bool) -> list[MiniBatch]:
    mini_batches = split_mini_batches(batch.rows, batch.trained_groups, config.ppo_mini_batch_size)
    return [
        pack_micro_batches(batch.rows, indices, config.max_token_len, share_prompts=share_prompts)
        for indices in mini_batches
    ]


def _resume(
    progress: UpdateProgress | None, batch: TrainBatch, num_updates: int
) -> tuple[int, Tensor | None, MetricSums]:
    """Updates made so far, old logprobs and metric sums at the start of a call."""
    if progress is None:
        return 0, None, MetricSums()
    if progress.old_logprobs.shape != batch.loss_mask.shape or not 0 < progress.next_update < num_updates:
        raise DamagedState(
            f"the step's progress (update {progress.next_update}, logprobs {tuple(progress.old_logprobs.shape)}) "
            f"belongs to another batch: this one has {num_updates} updates, {tuple(batch.loss_mask.shape)}"
        )
    return progress.next_update, progress.old_logprobs, deepcopy(progress.sums)


@torch.no_grad()
def _old_logprobs(
    logits_of: TrainedLogits, batch: TrainBatch, plan: Sequence[MiniBatch], config: LearnerConfig
) -> Tensor:
    """Logprobs under the model as it stands, of all rows in the plan. [B, T] on the CPU"""
    old_logprobs = torch.zeros(batch.loss_mask.shape)
    for indices in (micro_batch for mini_batch in plan for micro_batch in mini_batch):
        logprobs = completion_logprobs(logits_of, [batch.rows[index] for index in indices], config.temperature)
        old_logprobs[indices, : logprobs.shape[1]] = logprobs.cpu()
    return old_logprobs


def _apply_update(
    model: PreTrainedModel,
    optimizer: AdamW,
    logits_of: TrainedLogits,
    batch: TrainBatch,
    old_logprobs: Tensor | None,
    mini_batch: MiniBatch,
    config: LearnerConfig,
    sums: MetricSums,
) -> None:
    """One optimizer update on the summed gradient of a mini-batch's micro-batches."""
    parameters = trainable_parameters(model).values()
    denominators = LossDenominators.of(batch.loss_mask[[index for indices in mini_batch for index in indices]])
    optimizer.zero_grad()
    pg_loss = 0.0
    for indices in mini_batch:
        part = micro_batch_loss(
            logits_of,
            [batch.rows[index] for index in indices],
            batch.select(indices, old_logprobs, model.device),
            denominators,
            config,
        )
        torch.autograd.backward(part.loss)
        pg_loss += part.add_to(sums)
    complete_gradient(parameters)
    try:
        grad_norm = clip_gradient(parameters, config.max_grad_norm)
        optimizer.step()
    finally:
        optimizer.zero_grad()
    sums.add({"actor/pg_loss": pg_loss, "actor/grad_norm": grad_norm}, 1)
