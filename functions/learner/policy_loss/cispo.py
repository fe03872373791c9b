"""CISPO: the ratio is clipped as a weight, and every token keeps its gradient.

MiniMax-M1 (arXiv 2506.13585), eq. 4 to 5: `L = −sg[clip(r, 1 − low, 1 + high)] · A · log π` per token. PPO's clip
drops a token whose ratio left the range; here its weight is bounded and it goes on to learn. That is meant for the rare
tokens that turn a chain of thought, which move most in the first updates of a step.

The paper leaves the lower side open and tunes the upper one: `clip_ratio_low: 1` has no lower bound, and
`clip_ratio_high: 4` caps the weight at 5 (ScaleRL, arXiv 2510.13786; TRL writes the cap itself, `epsilon_high: 5`).
"""

import torch

from functions.learner.log_ratio import log_ratio
from functions.learner.loss_config import LossConfig
from functions.learner.policy_loss.inputs import PolicyLoss, PolicyLossInputs


def clipped_weight_policy_loss(inputs: PolicyLossInputs, config: LossConfig) -> PolicyLoss:
    """`cispo`. Its value says little, for a logprob is no objective; its gradient is what counts."""
    mask = inputs.loss_mask
    log_ratios = log_ratio(inputs.learner_logprobs, inputs.old_logprobs, mask).detach()
    ratio = log_ratios.exp()
    weight = ratio.clamp(1.0 - config.clip_ratio_low, 1.0 + config.clip_ratio_high)
    learner = torch.where(mask, inputs.learner_logprobs, 0.0)
    advantage = torch.where(mask, inputs.advantages, 0.0)
    is_clipped = weight != ratio
    return PolicyLoss(
        token_loss=-weight * advantage * learner,
        token_sums={
            "actor/ppo_kl": -log_ratios.sum(),
            "actor/pg_clipfrac": is_clipped.sum(),
            "actor/pg_clipfrac_lower": (is_clipped & (ratio < 1.0)).sum(),
        },
    )
