"""controller → reference: logprobs of the completions under the frozen policy. Token ids in, never text."""

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire


class ReferenceInputs(Wire):
    """Which completions to score under the reference weights that the call names."""

    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    temperature: float = Field(gt=0)


class ReferenceOutputs(Wire):
    """``reference_logprobs`` by completion, as one safetensors blob."""

    logprobs: BlobRef
