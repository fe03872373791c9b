"""How far the engine that sampled and the learner that trains disagree about the same tokens and weights.

In exact arithmetic they never do. A gap means other numerics, or a fault: stale weights, another temperature,
a wrong prefix.

Shapes: B rows, T completion positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.loss import MAX_LOG_RATIO


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


@torch.no_grad()
def truncated_importance_weights(
    old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor, cap: float
) -> Tensor:
    """`min(π_old / π_rollout, cap)` per token, 0 where masked. `[B, T]`

    Corrects that completions were sampled by the engine's distribution and not by the learner's; the cap bounds
    the variance (truncated importance sampling: Ionides 2008, section 2; for RL engines verl's `rollout_is`).
    """
    log_ratio = torch.where(loss_mask, old_logprobs, 0.0) - torch.where(loss_mask, rollout_logprobs, 0.0)
    weights = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=cap)
    return torch.where(loss_mask, weights, 0.0)
