"""controller → rollout: sample the completions of a batch. The work items wait in the store (DESIGN, rule 6)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """Samples of one prompt that an actor leases together.

    A plan makes tens of thousands of them, so it is checked where it is read from the wire, not where it is made.
    """

    row_uid: str
    samples: Annotated[tuple[int, ...], Field(min_length=1)]

    def to_json(self) -> str:
        """As the store keeps it; equal items are equal text."""
        return _WORK_ITEM.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "WorkItem":
        """Inverse of ``to_json``. Raises pydantic's ``ValidationError``."""
        return _WORK_ITEM.validate_json(text)


_WORK_ITEM = TypeAdapter(WorkItem)


class Operation(StrEnum):
    """What a rollout call does (``CallKey.operation``)."""

    MAIN = "main"
    """Lease items until none is left."""
    PROFILE = "profile"
    """Decode made-up sequences for a moment and say how fast that was. Leases, commits and reads no item."""


class RolloutInputs(Wire):
    """One worker call."""

    attempt_fields: ClassVar[frozenset[str]] = frozenset({"num_samples", "prefix_kv"})
    """A step that is repeated is planned anew, by what is known then, and goes on with the calls of the plan before."""

    prompts: BlobRef
    num_samples: int = Field(ge=1)
    """Completions per prompt: how many sequences a leased item brings."""
    sampling: Sampling
    run_seed: int = Field(ge=0, lt=2**63)
    max_num_sequences: int = Field(ge=1)
    """Sequences decoded at once by this replica."""
    multi_turn: MultiTurn | None = None
    """``None``: a completion is a single turn."""
    prefix_kv: bool = False
    """Whether the keys and values of the prompts were stored by prefill, for the workers to fetch."""


MAX_DECODE_STRETCHES = 64


class DecodeStretch(Wire):
    """Some decoding at nearly constant load: what the speed of a replica is learnt from."""

    num_steps: int = Field(ge=1)
    """Steps of one token per running sequence."""
    num_sequences: float = Field(ge=0)
    """Running ones, the mean over the steps."""
    context_tokens: float = Field(ge=0)
    """Prompt and generated tokens of all running sequences together, the mean over the steps."""
    seconds: float = Field(ge=0)


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
    num_migrated_in: int = Field(ge=0, default=0)
    """Those among them that another replica had begun."""
    num_migrated_out: int = Field(ge=0, default=0)
    """Unfinished sequences that a cut left to others."""
    decode: tuple[DecodeStretch, ...] = Field(max_length=MAX_DECODE_STRETCHES, default=())
    """All decoding of the call, in order."""
    prefill_tokens: int = Field(ge=0, default=0)
    """Context tokens whose keys and values were computed before sequences could go on."""
    reused_tokens: int = Field(ge=0, default=0)
    """Context tokens that another sequence's or a fetched prefix had already."""
    prefill_s: float = Field(ge=0, default=0.0)
    num_prefix_hits: int = Field(ge=0, default=0)
    """Prompts whose prefix KV was fetched."""
    num_prefix_misses: int = Field(ge=0, default=0)
    """Prompts whose prefix KV nobody had stored."""
    num_prefix_late: int = Field(ge=0, default=0)
    """Prompts whose prefix KV did not come in time."""
    num_prefix_damaged: int = Field(ge=0, default=0)
    """Prompts whose prefix KV was not what its handle says."""
    prefix_bytes: int = Field(ge=0, default=0)
    """Bytes of prefix KV that were fetched."""
    prefix_s: float = Field(ge=0, default=0.0)
    """Seconds that fetching them took."""
    kv_bytes_per_token: int = Field(ge=0, default=0)
    """Size of the keys and values of one token; 0 where it is not known."""
    kv_capacity_tokens: int = Field(ge=0, default=0)
    """Tokens whose keys and values the replica has room for; 0 where it is not known."""


class SequenceProgress(Wire):
    """One sequence at an actor, and how many tokens it has after its prompt."""

    row_uid: str
    sample: int = Field(ge=0)
    num_tokens: int = Field(ge=0)


class RolloutProgress(Wire):
    """How far one worker call is. The worker writes it about every 0.25 s; each report replaces the one before."""

    shard: int = Field(ge=0)
    segment: int = Field(ge=0)
    instance: str
    at: float
    """Unix seconds of the replica."""
    num_assigned: int = Field(ge=0)
    """Samples of this call: done, running and waiting ones."""
    num_done: int = Field(ge=0)
    num_waiting: int = Field(ge=0)
    """Samples without a place in the engine: taken ones, and those that waited in the store at the last look."""
    running: tuple[SequenceProgress, ...] = ()
    """Sequences in the engine."""
    finished: tuple[SequenceProgress, ...] = ()
    """Sequences that ended here in the last seconds: the first of a group tells how long the others may be."""
    free_slots: int = Field(ge=0)
    """Places in the engine that neither a running nor a waiting sample needs."""
    tokens_per_s: float = Field(ge=0)
    """Of all running sequences together, since the report before."""
    max_tokens: int = Field(ge=1)
    """The most tokens that a sequence can have after its prompt."""
    most_migrations: int = Field(ge=0, default=0)
    """How often the most travelled of its unfinished sequences was moved from one replica to another."""
    context_tokens: int = Field(ge=0, default=0)
    """Prompt and generated tokens of all running sequences together."""
    kv_bytes_per_token: int = Field(ge=0, default=0)
    """0 where it is not known."""
    kv_capacity_tokens: int = Field(ge=0, default=0)
    """0 where it is not known."""
