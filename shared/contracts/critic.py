"""controller → critic: per-token values, and the value update (a call of its own with its own version).

The call's ``policy`` is the critic's own version: its architecture, its weights, its digest.
"""

from typing import Literal

from pydantic import Field

from shared.contracts.batch import BatchPart
from shared.contracts.learner import LossAggregation, OptimConfig
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.training_pass import TrainingPass
from shared.contracts.wire import Wire


class CriticInit(Wire):
    """Publish version 0: the model's body with a value head that says 0 everywhere."""

    kind: Literal["init"] = "init"
    model: ModelRef


class ValuesInputs(Wire):
    """Values of the completions' tokens, never scaled by the sampling temperature."""

    kind: Literal["values"] = "values"
    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    max_token_len: int = Field(ge=1, default=32768)
    """Tokens of one forward pass. Changes speed and memory, never a value."""
    compute: TrainingPass = TrainingPass()
    partial: BlobRef | None = None
    """Where the segment before this one stopped; ``None`` in the first."""


class ValueUpdateConfig(Wire):
    """From returns to a value loss."""

    cliprange_value: float | None = Field(gt=0, default=0.5)
    """Values move by at most this from those that the advantages were computed with; ``None`` does not clip."""
    loss_agg_mode: LossAggregation = "token-mean"
    ppo_epochs: int = Field(ge=1, default=1)
    ppo_mini_batch_size: int = Field(ge=0, default=0)
    """Prompts per optimizer update; 0 takes the whole batch."""
    max_token_len: int = Field(ge=1, default=16384)
    compute: TrainingPass = TrainingPass()


class ValueUpdateInputs(Wire):
    """Fit the values to returns that the learner stored."""

    kind: Literal["update"] = "update"
    parts: tuple[BatchPart, ...] = Field(min_length=1)
    """With the values that the returns were computed from."""
    num_samples: int = Field(ge=1)
    returns: BlobRef
    """Token values ``returns`` of the batch, from the learner's ``advantages`` call."""
    state: BlobRef | None
    optim: OptimConfig
    update: ValueUpdateConfig = ValueUpdateConfig()
    progress: BlobRef | None = None
    """Where the segment before this one stopped; ``None`` in the first."""


class CriticInputs(Wire):
    """One of the critic's operations."""

    operation: CriticInit | ValuesInputs | ValueUpdateInputs = Field(discriminator="kind")


class CriticOutputs(Wire):
    """Values by reference, or the critic's next version; with status ``continue`` how to go on."""

    values: BlobRef | None = None
    """Token values ``values``: V of the state before each completion token."""
    partial: BlobRef | None = None
    """Names the completions whose values are finished, with status ``continue``."""
    critic: PolicyRef | None = None
    state: BlobRef | None = None
    num_updates: int = Field(ge=0, default=0)
    progress: BlobRef | None = None
    """Where an update is to go on, with status ``continue``."""
