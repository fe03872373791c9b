"""Softmax attention over a part of what a query sees, and how such parts become the whole.

With o_i the output over part i alone and l_i = log Σ exp(score) over it, the output over parts 1 and 2 together is
o_1 + σ(l_2 − l_1)·(o_2 − o_1), with the normaliser log(e^l_1 + e^l_2): exact, so that nothing is approximated.

Shapes: X = independent products, K = key-value heads, Y = queries of each, S = keys of each, D = head size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hidden:
    """Which keys some queries must not see."""

    scores: Tensor
    """`[X, 1, Y or 1, S]` float32, −inf where hidden, else 0."""
    maybe_everything: bool
    """Whether a query may be left without any key."""

    @classmethod
    def where(cls, hidden: Tensor, *, maybe_everything: bool = False) -> "Hidden":
        """From a boolean tensor of the shape of `scores`."""
        scores = torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)
        return cls(scores=scores, maybe_everything=maybe_everything)


def attend_part(queries: Tensor, keys: Tensor, values: Tensor, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
    """Output `[X, K, Y, D]` of scaled `queries` of this shape, in the dtype of `values`, and normaliser `[X, K, Y]`,
    float32, over `keys` and `values` `[X, K, S, D]`.

    Where nothing is seen the output is 0 and the normaliser −inf. Two batched products: with few queries per key they
    beat scaled_dot_product_attention on a CPU, whose exponential is good to six digits only.
    """
    scores, weights = _scores_and_weights(queries, keys, hidden)
    if hidden is not None and hidden.maybe_everything:
        weights = weights.nan_to_num(0.0)
        normaliser = scores.logsumexp(-1)
    else:
        # The largest weight is e^(largest score − normaliser): two maxima are cheaper than another sum of exponentials.
        normaliser = scores.amax(-1) - weights.amax(-1).log()
    return _weighted(weights, values), normaliser.view(queries.shape[:-1])


def attend_whole(queries: Tensor, keys: Tensor, values: Tensor, hidden: Hidden | None) -> Tensor:
    """The output alone, where there is no other part."""
    return _weighted(_scores_and_weights(queries, keys, hidden)[1], values)


def merge(output: Tensor, normaliser: Tensor, other: Tensor, its_normaliser: Tensor) -> Tensor:
    """The output over two parts, from those over each, `[..., D]`, and their normalisers `[..., 1]`."""
    return output.lerp(other, (its_normaliser - normaliser).sigmoid())


def _scores_and_weights(queries: Tensor, keys: Tensor, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
    """`[X * K, Y, S]` each, float32."""
    scores = torch.bmm(queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2)).float()
    if hidden is not None:
        scores.view(*queries.shape[:-1], -1).add_(hidden.scores)
    return scores, scores.softmax(-1)


def _weighted(weights: Tensor, values: Tensor) -> Tensor:
    output = torch.bmm(weights.to(values.dtype), values.flatten(0, 1))
    return output.view(*values.shape[:2], -1, values.shape[-1])
