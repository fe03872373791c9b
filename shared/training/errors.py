"""What can be wrong with rows, state or an update. Bad input is what the same call can never succeed with."""

from shared.contracts.errors import InvalidInput, UpdateFailed


class InvalidRows(InvalidInput):
    """The rows of a batch contradict themselves, each other or the model."""


class InvalidTrainingConfig(InvalidInput):
    """A value of the config is out of range or contradicts another one."""


class DamagedState(InvalidInput):
    """Stored state that is damaged, or of another kind or model."""


class NonFiniteGradient(UpdateFailed):
    """The gradient of an update holds NaN or infinity; the update was not applied."""


class UpdateTooLong(UpdateFailed):
    """No call has the time for a single micro-batch, as measured on those before; the version is unchanged."""


class ScoringTooLong(InvalidInput):
    """No call has the time for a single micro-batch of the size that the call allows, as measured on those before."""
