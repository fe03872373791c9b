"""What every policy loss reads and gives.

Shapes: B rows, T completion positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from functions.learner.loss_config import LossConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyLossInputs:
    """All `[B, T]`. Masked positions may hold anything, NaN and infinity included."""

    learner_logprobs: Tensor
    """The only one that gradients flow through."""
    old_logprobs: Tensor
    """Under the policy before the step's first update."""
    advantages: Tensor
    loss_mask: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyLoss:
    """The loss of every token, and sums over trained tokens from which exact means can be made."""

    token_loss: Tensor
    """[B, T], 0 where `loss_mask` is False; differentiable with respect to the learner's logprobs."""
    token_sums: dict[str, Tensor]
    """Scalars by metric name; divided by the number of trained tokens they are verl's metrics."""


PolicyLossFunction = Callable[[PolicyLossInputs, LossConfig], PolicyLoss]
"""Pure: no input is changed, no state is kept."""
