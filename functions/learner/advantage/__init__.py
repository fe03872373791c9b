"""Advantage estimators, one per file, by the name that the config gives."""

from collections.abc import Mapping

from functions.learner.advantage.gae import generalized_advantages
from functions.learner.advantage.group_relative import group_relative_advantages
from functions.learner.advantage.inputs import AdvantageFunction
from functions.learner.advantage.leave_one_out import leave_one_out_advantages
from functions.learner.advantage.reinforce_plus_plus import rewards_to_go
from functions.learner.advantage.reinforce_plus_plus_baseline import whitened_group_advantages
from shared.contracts.learner import AdvantageEstimator

ADVANTAGE_ESTIMATORS: Mapping[AdvantageEstimator, AdvantageFunction] = {
    "gae": generalized_advantages,
    "grpo": group_relative_advantages,
    "rloo": leave_one_out_advantages,
    "reinforce_plus_plus": rewards_to_go,
    "reinforce_plus_plus_baseline": whitened_group_advantages,
}
