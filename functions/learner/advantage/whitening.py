"""Advantages with mean 0 and standard deviation 1 over all trained tokens of the batch.

Shapes: B rows, T longest completion.
"""

import torch
from torch import Tensor

VARIANCE_EPSILON = 1e-8
"""verl's."""


def whiten(values: Tensor, trained: Tensor) -> Tensor:
    """`(x − mean) / √(var + ε)` over the trained tokens, n − 1 in the variance; 0 elsewhere. [B, T] of x's dtype

    Over the whole batch at once, never over a part of it: a micro-batch or a rank of its own would have another mean.
    Values that are all equal, or a single one, give 0.
    """
    kept = values[trained]
    if kept.numel() == 0 or kept.min() == kept.max():
        return torch.zeros_like(values)
    # Taken in one place: the variance of a mean-free copy loses no digits to a large mean.
    deviations = kept - kept.mean()
    variance = deviations.square().sum() / (kept.numel() - 1)
    whitened = torch.zeros_like(values)
    whitened[trained] = deviations * torch.rsqrt(variance + VARIANCE_EPSILON)
    return whitened
