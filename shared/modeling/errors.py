"""What can be wrong with a model that a call names. All are bad input: the same call can never succeed."""

from shared.contracts.errors import InvalidInput


class UnknownModel(InvalidInput):
    """No model at this path or hub id, or one that cannot be read."""


class UnsupportedModel(InvalidInput):
    """The model exists, but its architecture or files are not handled."""


class WeightsMismatch(InvalidInput):
    """A weights blob that is damaged or belongs to another architecture."""
