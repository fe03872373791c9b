"""PPO's clipped policy loss, the one of GRPO, DAPO and RLOO too: a ratio per token.

With r = π/π_old and A the advantage, per token (arXiv 1707.06347, eq. 7, as a loss):
`L = max(−A·r, −A·clip(r, 1 − low, 1 + high))`. The first update of a step has r = 1, so its gradient is the policy
gradient `−A·∇log π`; later ones stop pulling at a token that has moved far enough.

- An upper bound of its own, above the lower one, leaves unlikely tokens more room to grow (clip-higher of DAPO,
  arXiv 2503.14476, section 3.1).
- Dual clip (arXiv 1912.09729, eq. 5) adds `min(L, −A·c)` where A < 0. It bounds the loss of a bad token that became
  likely, which the maximum leaves unbounded. TRL calls c `delta` (INTELLECT-2, arXiv 2505.07291).
"""

import torch

from functions.learner.log_ratio import log_ratio
from functions.learner.loss_config import LossConfig
from functions.learner.policy_loss.inputs import PolicyLoss, PolicyLossInputs
from functions.learner.policy_loss.surrogate import clipped_surrogate


def clipped_policy_loss(inputs: PolicyLossInputs, config: LossConfig) -> PolicyLoss:
    """`vanilla`."""
    log_ratios = log_ratio(inputs.learner_logprobs, inputs.old_logprobs, inputs.loss_mask)
    advantage = torch.where(inputs.loss_mask, inputs.advantages, 0.0)
    surrogate = clipped_surrogate(log_ratios.exp(), advantage, config)
    return PolicyLoss(
        token_loss=surrogate.token_loss,
        token_sums={
            "actor/ppo_kl": -log_ratios.detach().sum(),
            "actor/pg_clipfrac": surrogate.is_clipped.sum(),
            "actor/pg_clipfrac_lower": surrogate.is_lower_clipped.sum(),
        },
    )
