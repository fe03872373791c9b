"""What can be wrong with a batch, which is bad input: the same call can never succeed; and with its update."""

from typing import ClassVar

from shared.contracts.errors import InvalidInput, UpdateFailed


class MissingReward(InvalidInput):
    """A row without a finite reward, in a group that was not dropped."""


class GroupTooSmall(InvalidInput):
    """A group with too few completions for the advantage estimator."""


class MissingValues(InvalidInput):
    """A critic's values, or a reference's logprobs, that the algorithm needs and the call does not name."""


class RankLost(UpdateFailed):
    """One of the learner's processes ended in the middle of an update; the policy is unchanged."""

    retryable: ClassVar[bool] = True
