"""controller → prefill → rollout: the prefix KV of distinct prompts, as handles (DESIGN, rule 3)."""

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire


class PrefillInputs(Wire):
    """Compute the KV of the batch's distinct prefixes."""

    prompts: BlobRef


class PrefixKvHandle(Wire):
    """Stored KV of one token block chain, valid for exactly one set of weights and one layout."""

    weights_digest: str
    tokenizer_fingerprint: str
    dtype: str
    layout: str
    block_hash: str
    num_tokens: int = Field(ge=1)
    blob: BlobRef


class PrefillOutputs(Wire):
    """Handles of the stored prefixes."""

    handles: tuple[PrefixKvHandle, ...]
