"""Truncated importance weights of whole completions.

`w = min(Π_t π_old(y_t) / π_rollout(y_t), cap)` over the trained tokens, the same for each of them (verl's
`rollout_is: sequence`). Without its cap it is unbiased; its variance grows with the length, so the cap does more.
"""

from torch import Tensor

from functions.learner.log_ratio import MAX_LOG_RATIO, masked_difference


def sequence_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Weights before they are capped; anything where masked. [B, T]"""
    total = masked_difference(old_logprobs, rollout_logprobs, loss_mask).sum(-1, keepdim=True)
    return total.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().expand_as(old_logprobs)
