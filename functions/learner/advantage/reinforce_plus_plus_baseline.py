"""REINFORCE++ with a baseline: a completion's reward less the mean of its group, whitened over the batch.

Hu (arXiv 2501.03262), the variant with a group baseline: `A_i = r_i − mean(r)` within the group, for every token of
completion i, then whitened over all trained tokens of the batch. The scale is the batch's and not the group's as in
GRPO, so a group that is almost solved is not blown up.
"""

import torch

from functions.learner.advantage.groups import centred, within_groups
from functions.learner.advantage.inputs import Advantages, CreditInputs
from functions.learner.advantage.whitening import whiten
from functions.learner.credit_config import CreditConfig


def whitened_group_advantages(inputs: CreditInputs, config: CreditConfig) -> Advantages:
    """`reinforce_plus_plus_baseline`. Raises GroupTooSmall for a group of one, whose baseline would be itself."""
    per_row = torch.tensor(within_groups(inputs.rows, inputs.completion_rewards(), centred), dtype=torch.float64)
    per_token = torch.where(inputs.sampled, per_row[:, None], 0.0)
    return Advantages(advantages=whiten(per_token, inputs.trained).float(), returns=per_token.float())
