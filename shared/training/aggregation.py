"""From per-token values to one number, with denominators of the whole mini-batch.

A micro-batch must not normalise by its own tokens: the gradient would then depend on how the mini-batch was cut.
Here every micro-batch divides by the counts of the whole mini-batch, and their sum is the mini-batch's loss.

Shapes: B rows, T completion positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from shared.contracts.learner import LossAggregation
from shared.training.errors import InvalidTrainingConfig


@dataclass(frozen=True, slots=True)
class LossDenominators:
    """Counts over a whole mini-batch (over all ranks, where there are several)."""

    num_tokens: int
    """Σ `loss_mask`: trained tokens only."""
    num_sequences: int
    """Rows with at least one trained token."""
    max_tokens: int | None = None
    """Tokens that a completion may have at most: the constant of `seq-mean-token-sum-norm`."""

    @classmethod
    def of(cls, loss_mask: Tensor, max_tokens: int | None = None) -> "LossDenominators":
        """Counts of the mini-batch whose mask `[B, T]` this is."""
        return cls(num_tokens=int(loss_mask.sum()), num_sequences=int(loss_mask.any(-1).sum()), max_tokens=max_tokens)


def aggregate(token_values: Tensor, loss_mask: Tensor, mode: LossAggregation, denominators: LossDenominators) -> Tensor:
    """A micro-batch's share of the mini-batch's aggregate of `token_values` `[B, T]`, a scalar.

    With x_bt the values at trained positions and n_b their number in row b:

    - `token-mean`: Σ_b Σ_t x_bt / Σ_b n_b. Long completions weigh more (DAPO, arXiv 2503.14476, eq. 12).
    - `seq-mean-token-sum`: mean over rows of Σ_t x_bt, the policy gradient of whole completions.
    - `seq-mean-token-sum-norm`: the same over a constant, the tokens that a completion may have (Dr. GRPO,
      arXiv 2503.20783, section 3.2): no term depends on a completion's length, and the step size does not on the limit.
    - `seq-mean-token-mean`: mean over rows of Σ_t x_bt / n_b. Every completion weighs the same (GRPO,
      arXiv 2402.03300, eq. 3).

    Rows are those with a trained token: a completion that is masked as a whole counts nowhere.

    Masked positions may hold anything, NaN included: they are replaced before the arithmetic, so neither the
    value nor the gradient can see them. Without a trained token the result is 0 and still has a graph.

    Raises InvalidTrainingConfig for `seq-mean-token-sum-norm` without its constant.
    """
    values = torch.where(loss_mask, token_values, 0.0)
    if mode == "token-mean":
        return values.sum() / max(1, denominators.num_tokens)
    per_row = values.sum(-1)
    if mode == "seq-mean-token-mean":
        per_row = per_row / loss_mask.sum(-1).clamp(min=1)
    elif mode == "seq-mean-token-sum-norm":
        if denominators.max_tokens is None:
            raise InvalidTrainingConfig(f"{mode} needs the longest completion's number of tokens to divide by")
        per_row = per_row / denominators.max_tokens
    return per_row.sum() / max(1, denominators.num_sequences)
