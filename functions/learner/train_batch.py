"""A batch made ready for its updates: what is trained on, with its advantages.

Shapes: B rows, T longest completion; b and t those of a micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from functions.learner.advantage.groups import flat_groups, require_rewards, rows_by_group, zero_std_groups
from functions.learner.config import LearnerConfig
from functions.learner.credit import Credit, assign_credit, trained_tokens
from functions.learner.errors import MissingValues
from functions.learner.metrics import batch_metrics
from functions.learner.rows import TrainRow
from functions.learner.shaping.truncation import rows_out_of_loss
from shared.training.batching import MiniBatch, pack_micro_batches, split_mini_batches
from shared.training.padding import pad_to_batch
from shared.training.rows import GroupKey


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchTensors:
    """What the loss reads of a micro-batch, on the model's device. `[b, t]`"""

    loss_mask: Tensor
    advantages: Tensor
    rollout_logprobs: Tensor
    reference_logprobs: Tensor | None
    old_logprobs: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """All rows of a step, and those of them that are trained on. Tensors `[B, T]` on the CPU."""

    rows: list[TrainRow]
    trained_groups: list[GroupKey]
    out_of_loss: frozenset[int]
    """Rows of these groups that have no place in the loss."""
    loss_mask: Tensor
    """True where a token is in the loss."""
    advantages: Tensor
    rollout_logprobs: Tensor
    reference_logprobs: Tensor | None
    next_kl_coef: float | None
    """The KL controller's answer; None where no penalty was computed here."""
    metrics: dict[str, float]

    def packing_plan(self, config: LearnerConfig, *, share_prompts: bool) -> list[MiniBatch]:
        """Which rows go through the model together. A mini-batch of which nothing is left is no update."""
        mini_batches = split_mini_batches(self.rows, self.trained_groups, config.ppo_mini_batch_size)
        kept = [[index for index in indices if index not in self.out_of_loss] for indices in mini_batches]
        return [
            pack_micro_batches(self.rows, indices, config.max_token_len, share_prompts=share_prompts)
            for indices in kept
            if indices
        ]

    def select(self, indices: Sequence[int], old_logprobs: Tensor | None, device: torch.device) -> MicroBatchTensors:
        """The rows of a micro-batch, cut to its longest completion."""
        length = max(self.rows[index].num_tokens for index in indices)

        def cut(values: Tensor) -> Tensor:
            return values[list(indices), :length].to(device)

        return MicroBatchTensors(
            loss_mask=cut(self.loss_mask),
            advantages=cut(self.advantages),
            rollout_logprobs=cut(self.rollout_logprobs),
            reference_logprobs=None if self.reference_logprobs is None else cut(self.reference_logprobs),
            old_logprobs=None if old_logprobs is None else cut(old_logprobs),
        )


def prepare_batch(rows: Sequence[TrainRow], config: LearnerConfig, old_logprobs: Tensor | None = None) -> TrainBatch:
    """Sorted rows as a batch. `old_logprobs` `[B, T]` of the policy that sampled, where advantages need them.

    Advantages that rows bring along are taken as they are. Raises MissingReward, MissingValues and what the advantage
    estimator refuses.
    """
    scores = require_rewards(rows)
    groups = list(rows_by_group(rows))
    left_out = flat_groups(rows) if config.credit.filter_groups else set()
    trained_groups = [key for key in groups if key not in left_out]
    reference = stacked([row.reference_logprobs for row in rows])
    if config.loss.kl_loss_type is not None and reference is None:
        raise MissingValues(
            "reference_logprobs: the KL term of the loss compares with the reference's; give parts with "
            "reference_logprobs, or an algorithm without kl_loss"
        )
    advantages, credit = stacked([row.advantages for row in rows]), None
    if advantages is None:
        credit = assign_credit(rows, config.credit, old_logprobs)
        advantages = credit.advantages
    out_of_loss = rows_out_of_loss(rows, config.credit)
    return TrainBatch(
        rows=list(rows),
        trained_groups=trained_groups,
        out_of_loss=out_of_loss,
        loss_mask=trained_tokens(rows, config.credit),
        advantages=advantages,
        rollout_logprobs=pad_to_batch([row.rollout_logprobs for row in rows]),
        reference_logprobs=reference,
        next_kl_coef=None if credit is None else credit.next_kl_coef,
        metrics={
            **batch_metrics(rows, scores),
            **_credit_metrics(credit),
            "frac_reward_zero_std": len(zero_std_groups(rows)) / len(groups),
            "training/num_filtered_groups": float(len(groups) - len(trained_groups)),
            **({"training/num_masked_completions": float(len(out_of_loss))} if config.credit.mask_truncated else {}),
        },
    )


def stacked(arrays: Sequence[NDArray[Any] | None]) -> Tensor | None:
    """Per-row arrays as `[B, T]`, None unless every row has one."""
    present = [array for array in arrays if array is not None]
    return pad_to_batch(present) if len(present) == len(arrays) else None


def _credit_metrics(credit: Credit | None) -> dict[str, float]:
    return {} if credit is None else credit.metrics
