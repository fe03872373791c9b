"""One step of the critic: values are moved towards the returns of a batch.

    rows ─▶ mini-batches ─▶ micro-batches ─▶ values ─▶ clipped loss ─▶ gradient ─▶ optimizer update

The denominators are those of the whole mini-batch, so how it is cut into micro-batches changes nothing. The order does
not depend on arrival, and on CPU a replay gives the same bits, in however many calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.critic.config import CriticConfig
from functions.critic.rows import ValueRow
from functions.critic.work import Work
from shared.training.batching import MiniBatch, pack_micro_batches, split_mini_batches
from shared.training.forward import trained_logits
from shared.training.optimizer import configure
from shared.training.progress import UpdateProgress
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.rows import sort_rows
from shared.training.schedule import learning_rate
from shared.training.scoring import refuse_unknown_tokens
from shared.training.time_budget import UNLIMITED, Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueUpdateResult:
    """What a step did, or did so far."""

    metrics: dict[str, float]
    """Of the whole step; empty while it is not complete."""
    num_updates: int
    """Optimizer updates of this step that the model now contains."""
    progress: UpdateProgress | None
    """How to go on; None when the step is complete."""
    num_passes: int
    """Micro-batches that this call computed."""


def update_values(
    model: PreTrainedModel,
    optimizer: AdamW,
    rows: Sequence[ValueRow],
    config: CriticConfig,
    *,
    step: int,
    budget: Budget = UNLIMITED,
    progress: UpdateProgress | None = None,
) -> ValueUpdateResult:
    """Trains the value model in place on one batch, given in any order.

    `budget` is asked before every micro-batch. Where it ends before the step, the rest is made by a call with the same
    arguments, the weights and optimizer state that this one left, and its `progress`; such calls together are
    bit-equal to a single one.

    Raises InvalidRows and DamagedState before anything has changed, NonFiniteGradient without applying that update;
    earlier ones of the call remain, so the caller drops the model.
    """
    rows = sort_rows(rows)
    refuse_unknown_tokens(rows, model.get_input_embeddings().weight.shape[0])
    share_prompts = supports_prompt_sharing(model)
    at = UpdateProgress() if progress is None else progress.branch()
    at.refuse_foreign_plan(len(rows))
    if at.packing_plan is None:
        at.packing_plan = _packing_plan(rows, config, share_prompts=share_prompts)
    lr = learning_rate(config, step)
    configure(optimizer, config, lr)
    model.eval()
    with trained_logits(model, share_prompts=share_prompts, config=config.compute) as values_of:
        work = Work(model, optimizer, values_of, rows, config, budget, at)
        is_complete = work.train(at.packing_plan * config.ppo_epochs)
    return ValueUpdateResult(
        metrics={**batch_metrics(rows), "critic/lr": lr, **at.sums.reduce()} if is_complete else {},
        num_updates=at.next_update,
        progress=None if is_complete else at,
        num_passes=work.num_passes,
    )


def _packing_plan(rows: Sequence[ValueRow], config: CriticConfig, *, share_prompts: bool) -> list[MiniBatch]:
    groups = list(dict.fromkeys(row.group for row in rows))
    return [
        pack_micro_batches(rows, indices, config.max_token_len, share_prompts=share_prompts)
        for indices in split_mini_batches(rows, groups, config.ppo_mini_batch_size)
    ]


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
