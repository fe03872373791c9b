"""REINFORCE++: rewards to go, whitened over the batch; neither a critic nor a group.

Hu (arXiv 2501.03262): `A_t = Σ_{k≥t} γ^(k−t) · r_k` over the tokens that follow, where r holds the reward at the last
token and, with a KL penalty in the reward, the penalty at each; then whitened over all trained tokens of the batch. The
batch's mean is the baseline, so a group may be of one completion.

As in `gae` only sampled tokens are steps of time. (verl starts again at each inserted token, so that the turns before a
tool's answer see nothing of the reward.)
"""

import torch

from functions.learner.advantage.inputs import Advantages, CreditInputs
from functions.learner.advantage.whitening import whiten
from functions.learner.credit_config import CreditConfig


def rewards_to_go(inputs: CreditInputs, config: CreditConfig) -> Advantages:
    """`reinforce_plus_plus`."""
    rewards, sampled = inputs.token_rewards(), inputs.sampled
    returns = torch.zeros_like(rewards)
    following = torch.zeros(len(rewards), dtype=torch.float64)
    for t in reversed(range(rewards.shape[1])):
        following = torch.where(sampled[:, t], rewards[:, t] + config.gamma * following, following)
        returns[:, t] = torch.where(sampled[:, t], following, 0.0)
    return Advantages(advantages=whiten(returns, inputs.trained).float(), returns=returns.float())
