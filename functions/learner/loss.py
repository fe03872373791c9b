"""The clipped policy loss of PPO. Pure: no input is changed, no state is kept.

Shapes: B rows, T completion positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound of |log ratio| before the exponential, so that one runaway token gives a large ratio and not infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The loss of every token, and sums over trained tokens from which exact means can be made."""

    token_loss: Tensor
    """[B, T], 0 where `loss_mask` is False; differentiable with respect to the learner's logprobs."""
    token_sums: dict[str, Tensor]
    """Scalars by metric name; divided by the number of trained tokens they are verl's metrics."""


def clipped_policy_loss(
    *,
    learner_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float | None = None,
    importance_weights: Tensor | None = None,
) -> PolicyLoss:
    """PPO's clipped surrogate (arXiv 1707.06347, eq. 7) with an upper bound of its own, all tensors `[B, T]`.

    With r = π/π_old and A the advantage, per token: `L = max(−A·r, −A·clip(r, 1 − low, 1 + high))`. A higher
    upper bound leaves unlikely tokens more room to grow (DAPO, arXiv 2503.14476, section 3.1). With
    `clip_ratio_c` also `min(L, −A·c)` where A < 0: dual clip (arXiv 1912.09729, eq. 5), which bounds the loss of
    a bad token that became likely. `importance_weights` multiply the loss and get no gradient.

    Masked positions may hold anything, NaN and infinity included, in every tensor: they are replaced before the
    arithmetic, so neither the loss nor the gradient can see them.
    """
    log_ratio = torch.where(loss_mask, learner_logprobs, 0.0) - torch.where(loss_mask, old_logprobs, 0.0)
    log_ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    advantage = torch.where(loss_mask, advantages, 0.0)

    unclipped = -advantage * ratio
    clipped = -advantage * ratio.clamp(1.0 - clip_ratio_low, 1.0 + clip_ratio_high)
    token_loss = torch.maximum(unclipped, clipped)
    is_clipped = clipped > unclipped
    is_lower_clipped = torch.zeros_like(is_clipped)
    if clip_ratio_c is not None:
        bound = -advantage * clip_ratio_c
        is_lower_clipped = (advantage < 0) & (token_loss > bound)
        token_loss = torch.where(is_lower_clipped, bound, token_loss)
    if importance_weights is not None:
        token_loss = token_loss * torch.where(loss_mask, importance_weights, 0.0).detach()

    return PolicyLoss(
        token_loss=token_loss,
        token_sums={
            "actor/ppo_kl": -log_ratio.detach().sum(),
            "actor/pg_clipfrac": is_clipped.sum(),
            "actor/pg_clipfrac_lower": is_lower_clipped.sum(),
        },
    )
