"""PPO's clipped surrogate of any ratio, per token or per sequence.

Shapes: B rows, T completion positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.loss_config import LossConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surrogate:
    """[B, T]"""

    token_loss: Tensor
    is_clipped: Tensor
    is_lower_clipped: Tensor
    """Where the dual clip holds."""


def clipped_surrogate(ratio: Tensor, advantage: Tensor, config: LossConfig) -> Surrogate:
    """`L = max(−A·r, −A·clip(r, 1 − low, 1 + high))`; with `clip_ratio_c` also `min(L, −A·c)` where A < 0."""
    unclipped = -advantage * ratio
    clipped = -advantage * ratio.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)
    token_loss = torch.maximum(unclipped, clipped)
    is_clipped = clipped > unclipped
    is_lower_clipped = torch.zeros_like(is_clipped)
    if config.clip_ratio_c is not None:
        bound = -advantage * config.clip_ratio_c
        is_lower_clipped = (advantage < 0) & (token_loss > bound)
        token_loss = torch.where(is_lower_clipped, bound, token_loss)
    return Surrogate(token_loss=token_loss, is_clipped=is_clipped, is_lower_clipped=is_lower_clipped)
