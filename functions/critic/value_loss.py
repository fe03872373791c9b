"""The clipped value loss of PPO.

Shapes: B rows, T completion positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLoss:
    """`[B, T]`; what stands at masked positions is not meant to be read."""

    token_loss: Tensor
    is_clipped: Tensor


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, loss_mask: Tensor, cliprange: float | None
) -> ValueLoss:
    """`½·max((V − R)², (clip(V, V_old ± ε) − R)²)` per token; without ε only the first square.

    The clip of PPO's reference implementation: a value gains nothing by moving further than ε from the one that the
    advantages were computed with, in whichever direction (Engstrom et al., arXiv 2005.12729, section 3).

    Masked positions may hold anything, NaN included: they are replaced before the arithmetic.
    """
    values, old_values, returns = (torch.where(loss_mask, each, 0.0) for each in (values, old_values, returns))
    unclipped = (values - returns).square()
    if cliprange is None:
        return ValueLoss(token_loss=0.5 * unclipped, is_clipped=torch.zeros_like(loss_mask))
    clipped = (old_values + (values - old_values).clamp(-cliprange, cliprange) - returns).square()
    return ValueLoss(token_loss=0.5 * torch.maximum(unclipped, clipped), is_clipped=clipped > unclipped)
