"""GSPO: one ratio for a whole completion, the geometric mean of its tokens' ratios.

Zheng et al. (arXiv 2507.18071), eq. 7: `s = (π(y|x) / π_old(y|x))^(1/|y|) = exp(mean_t (log π_t − log π_old,t))` over
the completion's trained tokens, in PPO's clipped surrogate. Clipping keeps or drops a completion as a whole, since it
was rewarded as a whole; single tokens' ratios are noise that grows with the length. A mean of logs moves little, so its
clip range is small: the paper has 3e-4 and 4e-4 (section 5.1).

This is the token form (GSPO-token, eq. 13 to 14): `s_t = sg[s] · π_t / sg[π_t]`, equal to s in value, with the gradient
`s·∇log π_t` at token t. With one advantage per completion and `seq-mean-token-mean` it is GSPO; it allows advantages
per token. Dual clip bounds s as it does a token's ratio.
"""

import torch

from functions.learner.log_ratio import MAX_LOG_RATIO, masked_difference
from functions.learner.loss_config import LossConfig
from functions.learner.policy_loss.inputs import PolicyLoss, PolicyLossInputs
from functions.learner.policy_loss.surrogate import clipped_surrogate


def sequence_policy_loss(inputs: PolicyLossInputs, config: LossConfig) -> PolicyLoss:
    """`gspo`."""
    mask = inputs.loss_mask
    log_ratios = masked_difference(inputs.learner_logprobs, inputs.old_logprobs, mask).detach()
    mean_log_ratio = log_ratios.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    learner = torch.where(mask, inputs.learner_logprobs, 0.0)
    ratio = (mean_log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO) + (learner - learner.detach())).exp()
    advantage = torch.where(mask, inputs.advantages, 0.0)
    surrogate = clipped_surrogate(ratio, advantage, config)
    return PolicyLoss(
        token_loss=surrogate.token_loss,
        token_sums={
            "actor/ppo_kl": -log_ratios.sum(),
            "actor/pg_clipfrac": surrogate.is_clipped.sum(),
            "actor/pg_clipfrac_lower": surrogate.is_lower_clipped.sum(),
        },
    )
