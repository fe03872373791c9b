"""One step of the learner: a batch of rows in, a changed model out.

    rows ─▶ advantages ─▶ mini-batches ─▶ micro-batches ─▶ logprobs ─▶ loss ─▶ gradient ─▶ optimizer update
            (credit)      (one update      (one forward                        (summed over
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
from functions.learner.credit import needs_old_logprobs
from functions.learner.objective import micro_batch_loss
from functions.learner.policy_logprobs import logprobs_of_all, policy_logprobs
from functions.learner.progress import UpdateProgress
from functions.learner.rows import TrainRow
from functions.learner.train_batch import TrainBatch, prepare_batch, stacked
from shared.training.aggregation import LossDenominators
from shared.training.batching import MiniBatch
from shared.training.errors import DamagedState
from shared.training.forward import TrainedLogits, trained_logits
from shared.training.gradient import clip_gradient, complete_gradient
from shared.training.metric_sums import MetricSums
from shared.training.optimizer import configure, trainable_parameters
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.rows import sort_rows
from shared.training.schedule import learning_rate
from shared.training.scoring import refuse_unknown_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What a step did, or did so far."""

    metrics: dict[str, float]
    num_updates: int
    """Optimizer updates of this step that the model now contains."""
    packing_plan: list[MiniBatch]
    """Numbers of the sorted rows in every micro-batch of every mini-batch; each epoch goes through all of it."""
    next_kl_coef: float | None
    """The KL controller's answer; None where no KL penalty was computed."""
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
    that sampled, and it saves a forward pass. A longer step computes them once, before its first update; so does one
    whose rewards hold a KL penalty.

    Raises InvalidRows, MissingReward, MissingValues, GroupTooSmall and DamagedState before anything has changed.
    Raises NonFiniteGradient without applying that update; earlier ones of the call remain, so the caller drops the
    model.
    """
    share_prompts = supports_prompt_sharing(model)
    ordered = sort_rows(rows)
    refuse_unknown_tokens(ordered, model.get_input_embeddings().weight.shape[0])
    model.eval()
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        old_logprobs = _known_old_logprobs(ordered, progress)
        if old_logprobs is None and _credit_needs_logprobs(ordered, config):
            old_logprobs = logprobs_of_all(
                logits_of, ordered, config.max_token_len, config.temperature, share_prompts=share_prompts
            )
        batch = prepare_batch(ordered, config, old_logprobs)
        plan = batch.packing_plan(config, share_prompts=share_prompts)
        updates = plan * config.ppo_epochs
        num_updates, sums = _resume(progress, len(updates))
        if len(updates) == 1:
            old_logprobs = None
        elif old_logprobs is None and updates:
            old_logprobs = policy_logprobs(logits_of, ordered, plan, config.temperature)
        lr = learning_rate(config, step)
        configure(optimizer, config, lr)
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
        next_kl_coef=batch.next_kl_coef,
        progress=rest,
    )


def _credit_needs_logprobs(rows: Sequence[TrainRow], config: LearnerConfig) -> bool:
    """Whether the rows' advantages are still to be computed, and need the policy's own logprobs."""
    return needs_old_logprobs(config.credit) and any(row.advantages is None for row in rows)


def _known_old_logprobs(rows: Sequence[TrainRow], progress: UpdateProgress | None) -> Tensor | None:
    """Those of the policy that sampled, from the part of the step before this or from an earlier call. [B, T]"""
    if progress is None:
        return stacked([row.old_logprobs for row in rows])
    shape = (len(rows), max(row.num_tokens for row in rows))
    if progress.old_logprobs.shape != shape:
        raise DamagedState(
            f"the step's progress belongs to another batch: its logprobs are {tuple(progress.old_logprobs.shape)}, "
            f"this batch is {shape}"
        )
    return progress.old_logprobs


def _resume(progress: UpdateProgress | None, num_updates: int) -> tuple[int, MetricSums]:
    """Updates made so far and metric sums at the start of a call."""
    if progress is None:
        return 0, MetricSums()
    if not 0 < progress.next_update < num_updates:
        raise DamagedState(
            f"the step's progress belongs to another batch: it goes on with update {progress.next_update}, "
            f"this batch has {num_updates}"
        )
    return progress.next_update, deepcopy(progress.sums)


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
    loss_mask = batch.loss_mask[[index for indices in mini_batch for index in indices]]
    denominators = LossDenominators.of(loss_mask, config.loss.max_completion_tokens)
    optimizer.zero_grad()
    terms: dict[str, float] = {}
    for indices in mini_batch:
        part = micro_batch_loss(
            logits_of,
            [batch.rows[index] for index in indices],
            batch.select(indices, old_logprobs, model.device),
            denominators,
            config,
        )
        torch.autograd.backward(part.loss)
        for name, value in part.add_to(sums).items():
            terms[name] = terms.get(name, 0.0) + value
    complete_gradient(parameters)
    try:
        grad_norm = clip_gradient(parameters, config.max_grad_norm)
        optimizer.step()
    finally:
        optimizer.zero_grad()
    sums.add({**terms, "actor/grad_norm": grad_norm}, 1)
