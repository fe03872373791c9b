"""controller → rollout: sample the completions of a batch. The work items wait in the store (DESIGN, rule 6)."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire

StopString = Annotated[str, Field(min_length=1, max_length=256)]

ToolName = Literal["calculator"]


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
    stop: tuple[StopString, ...] = ()
    """The token that completes one of these strings, however tokens cut it, ends the completion; it is part of the
    completion and is trained."""


class MultiTurn(Wire):
    """A tool that answers the model between its turns. The answer is inserted and not trained."""

    tool: ToolName
    """``calculator``: ``<calc>12*7</calc>`` is answered by ``<result>84</result>``."""
    max_turns: int = Field(ge=1)
    """Turns of the model; the last one gets no answer. ``max_tokens`` counts all turns and answers together."""


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
    multi_turn: MultiTurn | None = None
    """``None``: a completion is a single turn."""


class RolloutOutputs(Wire):
    """Summary of one worker call. The completions themselves are in the store."""

    num_completions: int = Field(ge=0)
    num_tokens: int = Field(ge=0)
    """Sampled and inserted ones."""
    num_turns: int = Field(ge=0, default=0)
    """Turns of the model, over all completions; one each without a tool."""
    num_tool_calls: int = Field(ge=0, default=0)
    """Answers that were inserted."""
    num_tool_errors: int = Field(ge=0, default=0)
    """Those among them that told the model of a mistake."""
    num_resumed: int = Field(ge=0, default=0)
    """Sequences continued from tokens that an earlier worker saved."""
