"""The KL penalty in the reward: each sampled token pays for its distance from the reference.

`r_t ← r_t − β·kl_t` (Ziegler et al., arXiv 1909.08593, eq. 2, per token as in InstructGPT, arXiv 2203.02155), with kl_t
of the policy that sampled. It is part of the reward, so it reaches the advantages and gets no gradient of its own.

Shapes: B rows, T longest completion.
"""

from dataclasses import dataclass

from torch import Tensor

from functions.learner.credit_config import CreditConfig
from functions.learner.kl.controller import next_kl_coef
from functions.learner.kl.estimators import estimate_kl


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KlPenalty:
    """What is taken off, and what follows from it."""

    token_penalties: Tensor
    """[B, T] float64, 0 where no token was sampled."""
    kl: float
    """Mean over completions of the KL per token."""
    next_coef: float


def kl_penalty(old_logprobs: Tensor, reference_logprobs: Tensor, sampled: Tensor, config: CreditConfig) -> KlPenalty:
    """The penalty of a batch `[B, T]` whose config asks for one."""
    if config.kl_penalty is None:
        raise ValueError("the config asks for no KL penalty")
    kl = estimate_kl(old_logprobs.double(), reference_logprobs.double(), sampled, config.kl_penalty)
    counts = sampled.sum(-1)
    of_completions = kl.sum(-1)[counts > 0] / counts[counts > 0]
    mean = of_completions.mean().item() if of_completions.numel() else 0.0
    return KlPenalty(token_penalties=config.kl_coef * kl, kl=mean, next_coef=next_kl_coef(config, mean, len(sampled)))
