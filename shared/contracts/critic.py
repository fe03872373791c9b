"""controller → critic: per-token values, and the value update (a call of its own with its own version)."""

from typing import Literal

from pydantic import Field

from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.wire import Wire


class ValuesInputs(Wire):
    """Values of the completions' tokens, never scaled by the sampling temperature."""

    kind: Literal["values"] = "values"
    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)


class ValueUpdateInputs(Wire):
    """Fit the values to returns that the learner stored."""

    kind: Literal["update"] = "update"
    prompts: BlobRef
    returns: BlobRef
    state: BlobRef | None


class CriticInputs(Wire):
    """Either operation of the critic."""

    operation: ValuesInputs | ValueUpdateInputs = Field(discriminator="kind")


class CriticOutputs(Wire):
    """Values by reference, or the critic's next version."""

    values: BlobRef | None = None
    critic: PolicyRef | None = None
    state: BlobRef | None = None
