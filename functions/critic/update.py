"""One step of the critic: values are moved towards the returns of a batch.

    rows ─▶ mini-batches ─▶ micro-batches ─▶ values ─▶ clipped loss ─▶ gradient ─▶ optimizer update

The denominators are those of the whole mini-batch, so how it is cut into micro-batches changes nothing. The order does
not depend on arrival, and on CPU a replay gives the same bits.

Shapes: B rows, T longest completion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.critic.config import CriticConfig
from functions.critic.rows import ValueRow
from functions.critic.value_loss import clipped_value_loss
from shared.training.aggregation import LossDenominators, aggregate
from shared.training.batching import MiniBatch, pack_micro_batches, split_mini_batches
from shared.training.forward import TrainedLogits, scatter_trained, trained_logits
from shared.training.gradient import clip_gradient, complete_gradient
from shared.training.metric_sums import MetricSums
from shared.training.optimizer import configure, trainable_parameters
from shared.training.padding import pad_to_batch
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.rows import sort_rows
from shared.training.schedule import learning_rate
from shared.training.scoring import refuse_unknown_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueUpdateResult:
    """What a step did."""

    metrics: dict[str, float]
    num_updates: int


def update_values(
    model: PreTrainedModel,
    optimizer: AdamW,
    rows: Sequence[ValueRow],
    config: CriticConfig,
    *,
    step: int,
    go_on: Callable[[], None] = lambda: None,
) -> ValueUpdateResult:
    """Trains the value model in place on one batch, given in any order.

    `go_on` is asked before each micro-batch; what it raises ends the step, with the model somewhere in between.
    Raises InvalidRows before anything has changed, NonFiniteGradient without applying that update.
    """
    rows = sort_rows(rows)
    refuse_unknown_tokens(rows, model.get_input_embeddings().weight.shape[0])
    share_prompts = supports_prompt_sharing(model)
    groups = list(dict.fromkeys(row.group for row in rows))
    plan = [
        pack_micro_batches(rows, indices, config.max_token_len, share_prompts=share_prompts)
        for indices in split_mini_batches(rows, groups, config.ppo_mini_batch_size)
    ]
    lr = learning_rate(config, step)
    configure(optimizer, config, lr)
    model.eval()
    sums = MetricSums()
    updates = plan * config.ppo_epochs
    with trained_logits(model, share_prompts=share_prompts, config=config.compute) as values_of:
        for mini_batch in updates:
            _apply_update(model, optimizer, values_of, rows, mini_batch, config, sums, go_on)
    metrics = {**batch_metrics(rows), "critic/lr": lr, **sums.reduce()}
    return ValueUpdateResult(metrics=metrics, num_updates=len(updates))


def _apply_update(
    model: PreTrainedModel,
    optimizer: AdamW,
    values_of: TrainedLogits,
    rows: Sequence[ValueRow],
    mini_batch: MiniBatch,
    config: CriticConfig,
    sums: MetricSums,
    go_on: Callable[[], None],
) -> None:
    """One optimizer update on the summed gradient of a mini-batch's micro-batches."""
    parameters = trainable_parameters(model).values()
    mask = pad_to_batch([rows[index].loss_mask for indices in mini_batch for index in indices])
    denominators = LossDenominators.of(mask)
    optimizer.zero_grad()
    vf_loss = 0.0
    for indices in mini_batch:
        go_on()
        part = [rows[index] for index in indices]
        values = scatter_trained(values_of(part)[:, 0].float(), part)
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
        vf_loss += loss.item()
        sums.add(
            {
                "critic/vf_clipfrac": float((losses.is_clipped & loss_mask).sum()),
                "critic/vpred_mean": float(values.detach().double().sum()),
            },
            int(loss_mask.sum()),
        )
    complete_gradient(parameters)
    try:
        grad_norm = clip_gradient(parameters, config.max_grad_norm)
        optimizer.step()
    finally:
        optimizer.zero_grad()
    sums.add({"critic/vf_loss": vf_loss, "critic/grad_norm": grad_norm}, 1)


def batch_metrics(rows: Sequence[ValueRow]) -> dict[str, float]:
    """Values and returns as the update finds them, over trained tokens. Explained variance is 1 − Var(R − V)/Var(R)."""
    values = _trained(rows, [row.old_values for row in rows])
    returns = _trained(rows, [row.returns for row in rows])
    metrics: dict[str, float] = {}
    for name, numbers in (("values", values), ("returns", returns)):
        if numbers.size:
            metrics[f"critic/{name}/mean"] = float(numbers.mean())
            metrics[f"critic/{name}/max"] = float(numbers.max())
            metrics[f"critic/{name}/min"] = float(numbers.min())
    spread = float(returns.var()) if returns.size else 0.0
    if spread > 0:
        metrics["critic/vf_explained_var"] = 1.0 - float((returns - values).var()) / spread
    return metrics


def _trained(rows: Sequence[ValueRow], arrays: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    parts = [numbers[row.loss_mask] for row, numbers in zip(rows, arrays, strict=True)]
    return np.concatenate(parts).astype(np.float64)
