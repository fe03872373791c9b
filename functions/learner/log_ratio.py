"""The log ratio of two policies at sampled tokens: what every loss, weight and KL estimate is made of.

Shapes: B rows, T completion positions.
"""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound of |log ratio| before the exponential, so that one runaway token gives a large ratio and not infinity."""


def masked_difference(logprobs: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """`logprobs − other`, 0 where masked. [B, T]

    Masked positions may hold anything, NaN and infinity included: they are replaced before the arithmetic, so that
    neither the value nor the gradient can see them.
    """
    return torch.where(mask, logprobs, 0.0) - torch.where(mask, other, 0.0)


def log_ratio(logprobs: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """The same within ±MAX_LOG_RATIO, beyond which it has no gradient. [B, T]"""
    return masked_difference(logprobs, other, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
