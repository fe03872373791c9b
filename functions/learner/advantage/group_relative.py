"""GRPO: a completion's reward relative to the other completions of its prompt.

DeepSeekMath (arXiv 2402.03300), section 4.1.2: `A_i = (r_i − mean(r)) / (std(r) + ε)` for every token of
completion i; std with n − 1 in the denominator, ε = 1e-6. Without the division it is Dr. GRPO's advantage
(arXiv 2503.20783), which does not favour prompts that are almost solved or almost hopeless.
"""

import math
from collections.abc import Sequence

from functions.learner.advantage.groups import centred, within_groups
from functions.learner.advantage.inputs import Advantages, CreditInputs, spread
from functions.learner.credit_config import CreditConfig

STD_EPSILON = 1e-6


def group_relative_advantages(inputs: CreditInputs, config: CreditConfig) -> Advantages:
    """`grpo`. Raises GroupTooSmall for a group of one, which has no spread to measure itself by."""

    def relate(rewards: list[float]) -> list[float]:
        return relative_rewards(rewards, by_std=config.norm_adv_by_std)

    return spread(within_groups(inputs.rows, inputs.completion_rewards(), relate), inputs)


def relative_rewards(rewards: Sequence[float], *, by_std: bool) -> list[float]:
    """`(r − mean) / (std + ε)`, or `r − mean`, of one group, in float64. Equal rewards give exactly 0."""
    deviations = centred(rewards)
    if not by_std or not any(deviations):
        return deviations
    std = math.sqrt(math.fsum(value * value for value in deviations) / (len(deviations) - 1))
    return [value / (std + STD_EPSILON) for value in deviations]
