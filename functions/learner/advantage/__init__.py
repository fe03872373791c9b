"""Advantage estimators, one per file, by the name that the config gives."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from functions.learner.advantage.group_relative import group_relative_advantages
from functions.learner.config import LearnerConfig
from functions.learner.rows import TrainRow

AdvantageFunction = Callable[[Sequence[TrainRow], LearnerConfig], Tensor]
"""(sorted rows [B], config) → advantage of every token [B, T] float32, 0 where `loss_mask` is False."""

ADVANTAGE_ESTIMATORS: Mapping[str, AdvantageFunction] = {"grpo": group_relative_advantages}
