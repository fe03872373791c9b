"""The groups of a batch and their rewards. Statistics are exact sums in float64, independent of row order."""

import math
from collections.abc import Sequence

from functions.learner.errors import MissingReward
from functions.learner.rows import TrainRow
from shared.training.rows import GroupKey


def rows_by_group(rows: Sequence[TrainRow]) -> dict[GroupKey, list[int]]:
    """Row indices of every group, groups and rows in the order of `rows`."""
    groups: dict[GroupKey, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.group, []).append(index)
    return groups


def require_rewards(rows: Sequence[TrainRow]) -> list[float]:
    """The rewards of all rows. Raises MissingReward where one is None or not finite: a failure is never a 0."""
    rewards = []
    for row in rows:
        if row.reward is None or not math.isfinite(row.reward):
            raise MissingReward(f"{row.label} has reward {row.reward}: score it again, or drop its whole group")
        rewards.append(float(row.reward))
    return rewards


def zero_std_groups(rows: Sequence[TrainRow]) -> set[GroupKey]:
    """Groups whose rewards are all equal, from which a group-relative estimator learns nothing."""
    rewards = require_rewards(rows)
    groups = rows_by_group(rows)
    return {key for key, indices in groups.items() if len({rewards[index] for index in indices}) == 1}
