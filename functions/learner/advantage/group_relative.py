"""GRPO: a completion's reward relative to the other completions of its prompt.

DeepSeekMath (arXiv 2402.03300), section 4.1.2: `A_i = (r_i − mean(r)) / (std(r) + ε)` for every token of
completion i; std with n − 1 in the denominator, ε = 1e-6. Without the division it is Dr. GRPO's advantage
(arXiv 2503.20783), which does not favour prompts that are almost solved or almost hopeless.

Shapes: B rows, T longest completion.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from functions.learner.advantage.groups import require_rewards, rows_by_group
from functions.learner.config import LearnerConfig
from functions.learner.errors import GroupTooSmall
from functions.learner.rows import TrainRow
from shared.training.padding import pad_to_batch

STD_EPSILON = 1e-6


def group_relative_advantages(rows: Sequence[TrainRow], config: LearnerConfig) -> Tensor:
    """Advantage of every token. [B, T] float32, 0 where `loss_mask` is False.

    Raises MissingReward, and GroupTooSmall for a group of one, which has no spread to measure itself by.
    """
    rewards = require_rewards(rows)
    per_row = [0.0] * len(rows)
    for (row_uid, round_), indices in rows_by_group(rows).items():
        if len(indices) < 2:
            raise GroupTooSmall(
                f"the group of row {row_uid!r}, round {round_}, has 1 completion; group-relative advantages "
                "need at least 2: raise the group size"
            )
        values = relative_rewards([rewards[index] for index in indices], by_std=config.norm_adv_by_std)
        for index, value in zip(indices, values, strict=True):
            per_row[index] = value
    loss_mask = pad_to_batch([row.loss_mask for row in rows])
    return torch.where(loss_mask, torch.tensor(per_row, dtype=torch.float32)[:, None], 0.0)


def relative_rewards(rewards: Sequence[float], *, by_std: bool) -> list[float]:
    """`(r − mean) / (std + ε)`, or `r − mean`, of one group, in float64.

    Equal rewards give exactly 0, which rounding of the mean alone would not.
    """
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if not by_std:
        return centred
    std = math.sqrt(math.fsum(value * value for value in centred) / (len(centred) - 1))
    return [value / (std + STD_EPSILON) for value in centred]
