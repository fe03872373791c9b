"""Importance weights between the engine that sampled and the learner that trains, by the level that the config gives.

Both compute logprobs of the same tokens under the same weights, in other numerics: completions are sampled by a policy
a little other than the one that is trained. Weighting the loss by the ratio of the two corrects it (truncated
importance sampling). The learner's logprobs are those before the step's first update; a step of one update has them for
free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.correction.sequence import sequence_weights
from functions.learner.correction.token import token_weights
from functions.learner.loss_config import LossConfig
from shared.contracts.learner import CorrectionLevel

_WEIGHTS: Mapping[CorrectionLevel, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "token": token_weights,
    "sequence": sequence_weights,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correction:
    """Weights of the policy loss, and sums over trained tokens by metric name."""

    weights: Tensor
    """[B, T], at most the threshold; 0 where masked; without a gradient."""
    token_sums: dict[str, Tensor]


@torch.no_grad()
def rollout_correction(
    old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor, config: LossConfig
) -> Correction | None:
    """The weights that the config asks for, None where it asks for none. Logprobs and mask `[B, T]`."""
    if config.rollout_is is None:
        return None
    raw = torch.where(loss_mask, _WEIGHTS[config.rollout_is](old_logprobs, rollout_logprobs, loss_mask), 0.0)
    weights = raw.clamp(max=config.rollout_is_threshold)
    return Correction(
        weights=weights,
        token_sums={
            "rollout_corr/rollout_is_mean": weights.sum(),
            "rollout_corr/rollout_is_ratio_fraction_high": (raw > config.rollout_is_threshold).sum(),
        },
    )
