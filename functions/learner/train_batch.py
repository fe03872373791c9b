"""A batch made ready for its updates: sorted, checked, with advantages.

Shapes: B rows, T longest completion; b and t those of a micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.advantage import ADVANTAGE_ESTIMATORS
from functions.learner.advantage.groups import require_rewards, rows_by_group, zero_std_groups
from functions.learner.config import LearnerConfig
from functions.learner.metrics import batch_metrics
from functions.learner.rows import TrainRow
from shared.training.errors import InvalidRows
from shared.training.padding import pad_to_batch
from shared.training.rows import GroupKey, sort_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchTensors:
    """What the loss reads of a micro-batch, on the model's device. `[b, t]`"""

    loss_mask: Tensor
    advantages: Tensor
    rollout_logprobs: Tensor
    old_logprobs: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """All rows of a step, and those groups of them that are trained on. Tensors `[B, T]` on the CPU."""

    rows: list[TrainRow]
    trained_groups: list[GroupKey]
    loss_mask: Tensor
    advantages: Tensor
    rollout_logprobs: Tensor
    metrics: dict[str, float]

    def select(self, indices: Sequence[int], old_logprobs: Tensor | None, device: torch.device) -> MicroBatchTensors:
        """The rows of a micro-batch, cut to its longest completion."""
        length = max(self.rows[index].num_tokens for index in indices)

        def cut(values: Tensor) -> Tensor:
            return values[list(indices), :length].to(device)

        return MicroBatchTensors(
            loss_mask=cut(self.loss_mask),
            advantages=cut(self.advantages),
            rollout_logprobs=cut(self.rollout_logprobs),
            old_logprobs=None if old_logprobs is None else cut(old_logprobs),
        )


def prepare_batch(rows: Sequence[TrainRow], config: LearnerConfig, vocab_size: int) -> TrainBatch:
    """Rows in any order as a batch. Raises InvalidRows, MissingReward and what the advantage estimator refuses."""
    ordered = sort_rows(rows)
    _refuse_unknown_tokens(ordered, vocab_size)
    rewards = require_rewards(ordered)
    advantages = ADVANTAGE_ESTIMATORS[config.adv_estimator](ordered, config)
    groups = list(rows_by_group(ordered))
    flat_groups = zero_std_groups(ordered)
    trained_groups = [key for key in groups if key not in flat_groups] if config.filter_groups else groups
    return TrainBatch(
        rows=ordered,
        trained_groups=trained_groups,
        loss_mask=pad_to_batch([row.loss_mask for row in ordered]),
        advantages=advantages,
        rollout_logprobs=pad_to_batch([row.rollout_logprobs for row in ordered]),
        metrics={
            **batch_metrics(ordered, rewards, advantages),
            "frac_reward_zero_std": len(flat_groups) / len(groups),
            "training/num_filtered_groups": float(len(groups) - len(trained_groups)),
        },
    )


def _refuse_unknown_tokens(rows: Sequence[TrainRow], vocab_size: int) -> None:
    for row in rows:
        for token_ids in (row.prompt_token_ids, row.completion_token_ids):
            if token_ids.min() < 0 or token_ids.max() >= vocab_size:
                raise InvalidRows(
                    f"{row.label} holds token ids outside the model's vocabulary of {vocab_size}: "
                    "was it made with another tokenizer?"
                )
