"""What can be wrong with a batch. All are bad input: the same call can never succeed."""

from shared.contracts.errors import InvalidInput


class MissingReward(InvalidInput):
    """A row without a finite reward, in a group that was not dropped."""


class GroupTooSmall(InvalidInput):
    """A group with too few completions for the advantage estimator."""


class MissingValues(InvalidInput):
    """A critic's values, or a reference's logprobs, that the algorithm needs and the call does not name."""
