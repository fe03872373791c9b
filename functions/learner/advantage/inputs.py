"""What every advantage estimator reads and gives.

Shapes: B rows, T longest completion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.learner.credit_config import CreditConfig
from functions.learner.errors import MissingValues
from functions.learner.rows import TrainRow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditInputs:
    """The rewards of a batch, as they are to be credited to tokens. Masked positions may hold anything."""

    rows: Sequence[TrainRow]
    """Sorted."""
    rewards: Sequence[float]
    """[B] of each completion, after shaping."""
    token_penalties: Tensor | None
    """[B, T] float64, taken off the reward of each sampled token (KL in the reward); None where there are none."""
    values: Tensor | None
    """[B, T] the critic's value before each token."""
    sampled: Tensor
    """[B, T] True where the policy sampled the token: those are a completion's actions."""
    trained: Tensor
    """[B, T] True where the token is in the loss: all sampled ones, or fewer."""

    def completion_rewards(self) -> list[float]:
        """What each completion is worth in sum, in float64. [B]"""
        if self.token_penalties is None:
            return list(self.rewards)
        penalties = torch.where(self.sampled, self.token_penalties, 0.0).sum(-1).tolist()
        return [reward - penalty for reward, penalty in zip(self.rewards, penalties, strict=True)]

    def token_rewards(self) -> Tensor:
        """The completion's reward at its last sampled token, penalties at theirs, 0 elsewhere. [B, T] float64"""
        length = self.sampled.shape[1]
        positions = torch.where(self.sampled, torch.arange(length), -1)
        is_last = self.sampled & (positions == positions.amax(-1, keepdim=True))
        rewards = torch.where(is_last, torch.tensor(self.rewards, dtype=torch.float64)[:, None], 0.0)
        if self.token_penalties is None:
            return rewards
        return rewards - torch.where(self.sampled, self.token_penalties, 0.0)

    def require_values(self) -> Tensor:
        """The critic's values, 0 where no token was sampled. [B, T] float64. Raises MissingValues."""
        if self.values is None:
            raise MissingValues("values: gae needs the critic's; give parts with values, or another adv_estimator")
        return torch.where(self.sampled, self.values.double(), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advantages:
    """[B, T] float32, 0 where no token was sampled."""

    advantages: Tensor
    """Also 0 where the token is not in the loss."""
    returns: Tensor
    """What the critic is fitted to; without one, what the advantage was made of."""


AdvantageFunction = Callable[[CreditInputs, CreditConfig], Advantages]


def spread(per_row: Sequence[float], inputs: CreditInputs) -> Advantages:
    """One number per completion, as the advantage of each of its tokens. It is the return too."""
    column = torch.tensor(per_row, dtype=torch.float32)[:, None]
    return Advantages(
        advantages=torch.where(inputs.trained, column, 0.0), returns=torch.where(inputs.sampled, column, 0.0)
    )
