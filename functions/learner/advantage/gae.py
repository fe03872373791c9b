"""PPO's advantages: generalized advantage estimation from a critic's values.

Schulman et al. (arXiv 1506.02438), eq. 16: `A_t = Σ_l (γλ)^l · δ_{t+l}`, `δ_t = r_t + γ·V_{t+1} − V_t`; the critic is
fitted to `A_t + V_t`. Advantages are then whitened over all trained tokens of the batch, as PPO does and verl.

Only sampled tokens are steps of time. Tokens that a tool inserted are passed over: a step goes from a sampled token to
the next sampled one, however far that is, and is discounted once.

Behind the last sampled token the value is 0, also for a completion that was cut at its longest length: cutting is
an end like any other here, as in verl, and nothing is bootstrapped from the state that it was cut in. So the value of a
prefix says what the reward will be under this limit.
"""

import torch

from functions.learner.advantage.inputs import Advantages, CreditInputs
from functions.learner.advantage.whitening import whiten
from functions.learner.credit_config import CreditConfig


def generalized_advantages(inputs: CreditInputs, config: CreditConfig) -> Advantages:
    """`gae`. Raises MissingValues without a critic's values."""
    values, rewards, sampled = inputs.require_values(), inputs.token_rewards(), inputs.sampled
    advantages = torch.zeros_like(rewards)
    next_value, following = torch.zeros(len(rewards), dtype=torch.float64), torch.zeros(len(rewards)).double()
    for t in reversed(range(rewards.shape[1])):
        step = sampled[:, t]
        delta = rewards[:, t] + config.gamma * next_value - values[:, t]
        following = torch.where(step, delta + config.gamma * config.lam * following, following)
        next_value = torch.where(step, values[:, t], next_value)
        advantages[:, t] = torch.where(step, following, 0.0)
    return Advantages(
        advantages=whiten(advantages, inputs.trained).float(),
        returns=(advantages + values).float(),
    )
