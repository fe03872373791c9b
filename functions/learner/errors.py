"""What can be wrong with a batch or an update. All but the last are bad input: the same call can never succeed."""

from shared.contracts.errors import InvalidInput, UpdateFailed


class InvalidRows(InvalidInput):
    """The rows of a batch contradict themselves, each other or the model."""


class MissingReward(InvalidInput):
    """A row without a finite reward, in a group that was not dropped."""


class GroupTooSmall(InvalidInput):
    """A group with too few completions for the advantage estimator."""


class InvalidLearnerConfig(InvalidInput):
    """A value of the learner's config is out of range or contradicts another one."""


class DamagedState(InvalidInput):
    """Stored learner state that is damaged, or of another kind or model."""


class NonFiniteGradient(UpdateFailed):
    """The gradient of an update holds NaN or infinity; the update was not applied."""
