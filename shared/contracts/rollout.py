"""controller → rollout: sample the completions of a batch. The work items wait in the store (DESIGN, rule 6)."""

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire


class Sampling(Wire):
    """How completions are drawn. Every field is set explicitly; no engine default applies."""

    temperature: float = Field(ge=0)
    """0 takes the most probable token (evaluation only)."""
    top_p: float = Field(gt=0, le=1, default=1.0)
    top_k: int = Field(ge=0, default=0)
    """0 keeps all."""
    min_tokens: int = Field(ge=0, default=0)
    max_tokens: int = Field(ge=1)
    eos_token_ids: tuple[int, ...]
    """Sampling one of these ends the completion; it is part of the completion and is trained."""
    ignore_eos: bool = False
    """Sample exactly ``max_tokens`` (benchmarks)."""


class WorkItem(Wire):
    """Samples of one prompt that an actor leases together."""

    row_uid: str
    samples: tuple[int, ...] = Field(min_length=1)


class RolloutInputs(Wire):
    """One worker call: lease items until none is left."""

    prompts: BlobRef
    num_samples: int = Field(ge=1)
    """Completions per prompt: how many sequences a leased item brings."""
    sampling: Sampling
    run_seed: int = Field(ge=0, lt=2**63)
    max_num_sequences: int = Field(ge=1)
    """Sequences decoded at once by this replica."""


class RolloutOutputs(Wire):
    """Summary of one worker call. The completions themselves are in the store."""

    num_completions: int = Field(ge=0)
    num_tokens: int = Field(ge=0)
    num_resumed: int = Field(ge=0, default=0)
    """Sequences continued from tokens that an earlier worker saved."""
