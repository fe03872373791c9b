"""controller → prefill → rollout: the prefix KV of distinct prompts, as handles (DESIGN, rule 3).

The prefill stage writes handles into the store; whoever generates looks them up by the hash of its own tokens, so no
list of them travels.
"""

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire


class PrefillInputs(Wire):
    """Compute the KV of the batch's distinct prompts, beginnings that they share once."""

    prompts: BlobRef
    row_uids: tuple[str, ...] | None = None
    """Rows of the batch to compute; ``None``: all."""
    max_num_prefixes: int = Field(ge=1)
    """Prefixes that are computed together at most: the paper's B_prefill (arXiv 2602.22718, deduplicated prefill)."""
    first_round: int = Field(ge=0, default=0)
    """Where a call that its deadline cut stopped: ``next_round`` of its outputs."""


class PrefixKvScope(Wire):
    """What stored KV is valid for. A version number is no part of it: version 3 of two runs are two policies."""

    weights_digest: str = Field(min_length=1)
    """Of the policy, its adapter included."""
    tokenizer_fingerprint: str = Field(min_length=1)
    dtype: str = Field(min_length=1)
    layout: str = Field(min_length=1)
    """Which tensors of which shape: ``KvLayout.name``."""


class PrefixKvHandle(Wire):
    """Where the KV of one block of tokens lies. Its hash stands for the block and all tokens before it."""

    scope: PrefixKvScope
    block_hash: str = Field(min_length=1)
    num_tokens: int = Field(ge=1)
    offset: int = Field(ge=0)
    """Tokens of the blob before this block: neighbouring blocks share one."""
    blob: BlobRef


class PrefillOutputs(Wire):
    """Summary of one prefill call. The handles themselves are in the store."""

    num_prefixes: int = Field(ge=0)
    """Distinct prefixes that the call worked on."""
    num_prefix_tokens: int = Field(ge=0)
    """Tokens of all these prefixes."""
    computed_tokens: int = Field(ge=0)
    """Those that went through the model: beginnings in common count once, what was stored before not at all."""
    num_handles: int = Field(ge=0)
    """Handles written."""
    stored_bytes: int = Field(ge=0)
    num_refused: int = Field(ge=0, default=0)
    """Blobs that were not kept: over the byte budget, or the store is full or does not answer. The rest of the call is
    then left out, for actors compute locally what they do not find."""
    compute_s: float = Field(ge=0, default=0.0)
    """Seconds in the model: ``computed_tokens / compute_s`` is the prefill speed."""
    store_s: float = Field(ge=0, default=0.0)
    """Seconds of writing: ``stored_bytes / store_s`` is the bandwidth."""
    next_round: int | None = None
    """Where to go on, in a call that its deadline cut."""
