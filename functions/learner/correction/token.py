"""Truncated importance weights of single tokens.

`w_t = min(π_old(y_t) / π_rollout(y_t), cap)` (Ionides 2008, section 2; verl's `rollout_is: token`). It corrects a
token's own probability but not that its prefix was sampled by the engine too: a little biased, with little variance at
any length.
"""

from torch import Tensor

from functions.learner.log_ratio import log_ratio


def token_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Weights before they are capped; anything where masked. [B, T]"""
    return log_ratio(old_logprobs, rollout_logprobs, loss_mask).exp()
