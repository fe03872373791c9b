"""How far the engine that sampled and the learner that trains disagree about the same tokens and weights.

In exact arithmetic they never do. A gap means other numerics, or a fault: stale weights, another temperature,
a wrong prefix.

Shapes: B rows, T completion positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Sums over trained tokens, and largest values, by metric name; scalars."""

    token_sums: dict[str, Tensor]
    maxima: dict[str, Tensor]


@torch.no_grad()
def rollout_mismatch(old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor) -> Mismatch:
    """Gauge of |π_learner − π_rollout| per token, in probability and in logprob. All `[B, T]`."""
    learner = torch.where(loss_mask, old_logprobs, 0.0)
    rollout = torch.where(loss_mask, rollout_logprobs, 0.0)
    probs_gap = (learner.exp() - rollout.exp()).abs()
    logprobs_gap = (learner - rollout).abs()
    return Mismatch(
        token_sums={
            "training/rollout_probs_diff_mean": probs_gap.sum(),
            "training/rollout_logprobs_diff_mean": logprobs_gap.sum(),
        },
        maxima={
            "training/rollout_probs_diff_max": probs_gap.max(),
            "training/rollout_logprobs_diff_max": logprobs_gap.max(),
        },
    )
