"""controller → reference: logprobs of the completions under the frozen policy. Token ids in, never text."""

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.training_pass import TrainingPass
from shared.contracts.wire import Wire


class ReferenceInputs(Wire):
    """Which completions to score under the reference weights that the call names."""

    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    temperature: float = Field(gt=0)
    max_token_len: int = Field(ge=1, default=32768)
    """Tokens of one forward pass. Changes speed and memory, never a logprob."""
    compute: TrainingPass = TrainingPass()
    partial: BlobRef | None = None
    """Where the segment before this one stopped; ``None`` in the first."""


class ReferenceOutputs(Wire):
    """The logprobs by reference, or with status ``continue`` how to go on."""

    logprobs: BlobRef | None = None
    """Token values ``reference_logprobs``: the full softmax at the sampling temperature, of the sampled ids."""
    partial: BlobRef | None = None
    """Names the completions that are finished, with status ``continue``."""
