"""The groups of a batch and their rewards. Statistics are exact sums in float64, independent of row order."""

import math
from collections.abc import Callable, Sequence

from functions.learner.errors import GroupTooSmall, MissingReward
from functions.learner.rows import TrainRow
from shared.training.rows import GroupKey


def rows_by_group(rows: Sequence[TrainRow]) -> dict[GroupKey, list[int]]:
    """Row indices of every group, groups and rows in the order of `rows`."""
    groups: dict[GroupKey, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.group, []).append(index)
    return groups


def within_groups(
    rows: Sequence[TrainRow], rewards: Sequence[float], relate: Callable[[list[float]], list[float]]
) -> list[float]:
    """What `relate` makes of the rewards of each group. [B]

    Raises GroupTooSmall for a group of one, which has nothing to be compared with.
    """
    per_row = [0.0] * len(rows)
    for (row_uid, round_), indices in rows_by_group(rows).items():
        if len(indices) < 2:
            raise GroupTooSmall(
                f"the group of row {row_uid!r}, round {round_}, has 1 completion; group-relative advantages "
                "need at least 2: raise the group size"
            )
        for index, value in zip(indices, relate([rewards[index] for index in indices]), strict=True):
            per_row[index] = value
    return per_row


def centred(rewards: Sequence[float]) -> list[float]:
    """`r − mean` of one group. Equal rewards give exactly 0, which rounding of the mean alone would not."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def require_rewards(rows: Sequence[TrainRow]) -> list[float]:
    """The rewards of all rows. Raises MissingReward where one is None or not finite: a failure is never a 0."""
    rewards = []
    for row in rows:
        if row.reward is None or not math.isfinite(row.reward):
            raise MissingReward(f"{row.label} has reward {row.reward}: score it again, or drop its whole group")
        rewards.append(float(row.reward))
    return rewards


def flat_groups(rows: Sequence[TrainRow]) -> set[GroupKey]:
    """Groups whose completions are all equally correct, which dynamic sampling leaves out.

    Where nobody says which they are, they are those of equal rewards as they were scored: a length penalty would tell
    apart the completions of a group that are all right.
    """
    said = {row.group: row.group_is_flat for row in rows if row.group_is_flat is not None}
    untold = {key for key in zero_std_groups(rows) if key not in said}
    return untold | {key for key, is_flat in said.items() if is_flat}


def zero_std_groups(rows: Sequence[TrainRow]) -> set[GroupKey]:
    """Groups whose rewards are all equal, from which a group-relative estimator learns nothing."""
    rewards = require_rewards(rows)
    groups = rows_by_group(rows)
    return {key for key, indices in groups.items() if len({rewards[index] for index in indices}) == 1}
