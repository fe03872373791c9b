"""Estimators of KL(π‖π_ref) from the tokens that π sampled, by verl's names.

Schulman, "Approximating KL divergence" (2020), with x = log π(y) − log π_ref(y) at a sampled token y:

| name         | estimate          | its mean  | mean of its gradient, as a term of the loss |
|--------------|-------------------|-----------|---------------------------------------------|
| `kl`         | k1 = x            | KL(π‖ref) | 0: it does nothing but add noise            |
| `mse`        | k2 = x²/2         | biased    | ∇KL(π‖ref)                                  |
| `low_var_kl` | k3 = e^(−x) − 1 + x | KL(π‖ref) | ∇KL(ref‖π)                                |

The gradient of a mean over samples of π is not the mean of the gradients: the samples depend on the weights too. So the
best estimate of the value is not the best term of a loss. In the loss take `mse`, or `low_var_kl` as GRPO does
(arXiv 2402.03300, eq. 4; a forward KL, which pulls at tokens that the reference likes and the policy forgot). In the
reward the estimate is a number and its mean counts: `kl` there gives exactly −∇KL(π‖ref) through the policy gradient.

Shapes: B rows, T completion positions.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from functions.learner.log_ratio import log_ratio
from shared.contracts.learner import KlEstimator


def k1(log_ratios: Tensor) -> Tensor:
    """x"""
    return log_ratios


def k2(log_ratios: Tensor) -> Tensor:
    """x²/2"""
    return log_ratios.square() / 2.0


def k3(log_ratios: Tensor) -> Tensor:
    """e^(−x) − 1 + x, never negative."""
    return torch.expm1(-log_ratios) + log_ratios


_ESTIMATES: Mapping[KlEstimator, Callable[[Tensor], Tensor]] = {"kl": k1, "mse": k2, "low_var_kl": k3}


def estimate_kl(logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor, estimator: KlEstimator) -> Tensor:
    """The estimate at every token, 0 where masked, whatever stands there. [B, T]

    Differentiable with respect to `logprobs`. The estimate itself is never cut: beyond ±20 of the log ratio alone it
    has no gradient.
    """
    return _ESTIMATES[estimator](log_ratio(logprobs, reference_logprobs, mask))
