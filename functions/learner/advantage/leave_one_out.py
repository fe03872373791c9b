"""RLOO: a completion's reward against the mean reward of the other completions of its prompt.

REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740, eq. 6; Kool et al. 2019):
`A_i = r_i − mean_{j≠i} r_j = (r_i − mean(r)) · n / (n − 1)` for every token of completion i. The baseline does not
depend on the completion itself, so the gradient is unbiased. (GRPO's deviation is (n − 1) / n of it, over the spread.)
"""

from collections.abc import Sequence

from functions.learner.advantage.groups import centred, within_groups
from functions.learner.advantage.inputs import Advantages, CreditInputs, spread
from functions.learner.credit_config import CreditConfig


def leave_one_out_advantages(inputs: CreditInputs, config: CreditConfig) -> Advantages:
    """`rloo`. Raises GroupTooSmall for a group of one, in which nothing is left."""
    return spread(within_groups(inputs.rows, inputs.completion_rewards(), leave_one_out), inputs)


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """`r_i − mean of the others`, of one group, in float64. Equal rewards give exactly 0."""
    n = len(rewards)
    return [value * n / (n - 1) for value in centred(rewards)]
