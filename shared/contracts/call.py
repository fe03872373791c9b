"""controller → any stage, and back: the envelope of a stage call (DESIGN, the stage protocol).

A stage call is a pure function of references. Its key names the result; the digest of its body, without
the fields that may differ between two attempts, tells whether two calls with one key are the same call.
"""

import hashlib
import json
from typing import Generic, Literal, TypeVar

from pydantic import Field

from shared.contracts.ids import Identifier
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Purpose, Stage
from shared.contracts.wire import Wire

InputsT = TypeVar("InputsT", bound=Wire)
OutputsT = TypeVar("OutputsT", bound=Wire)

ATTEMPT_FIELDS = frozenset({"attempt", "fence", "deadline_at", "threads", "trace_id"})
"""Fields that two attempts at the same call may differ in; the body digest leaves them out, and those of the inputs."""


class BatchKey(Wire):
    """One batch of rollouts: what rollout writes and reward, critic and learner read."""

    run: Identifier
    purpose: Purpose
    step: int = Field(ge=0)
    round: int = Field(ge=0, default=0)
    """Sampling round within the step (dynamic sampling draws more than one)."""


class CallKey(BatchKey):
    """Names one stage call and its result."""

    stage: Stage
    operation: Identifier = "main"
    """Which of the stage's operations, where a batch needs several of them (advantages before update, say)."""
    shard: int = Field(ge=0, default=0)
    segment: int = Field(ge=0, default=0)
    """Counts the calls that one piece of work was cut into by its deadline."""

    @property
    def batch(self) -> BatchKey:
        """The batch that the call works on."""
        return BatchKey(run=self.run, purpose=self.purpose, step=self.step, round=self.round)

    def __str__(self) -> str:
        batch = f"{self.run}/{self.purpose}/{self.step}/{self.round}"
        return f"{batch}/{self.stage}/{self.operation}/{self.shard}/{self.segment}"


class StageCall(Wire, Generic[InputsT]):
    """A request to a stage."""

    key: CallKey
    attempt: int = Field(ge=0, default=0)
    fence: int = Field(ge=0)
    """Rises with each owner of the run; a stage refuses a lower one than it has seen."""
    policy: PolicyRef | None = None
    """Weights that must serve the call; ``None`` where the stage needs none."""
    deadline_at: float
    """Unix time, seconds. The function answers before it, with ``continue`` if work is left."""
    threads: int = Field(ge=1, le=1024, default=1)
    """Compute threads to use: cores divided by the replicas that compute at once."""
    trace_id: str = Field(default="", max_length=128)
    inputs: InputsT

    def digest(self) -> str:
        """SHA-256 of the canonical body without the attempt's own fields."""
        body = self.model_dump(mode="json", exclude=set(ATTEMPT_FIELDS))
        for name in self.inputs.attempt_fields:
            del body["inputs"][name]
        return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class ServedBy(Wire):
    """Proof of what served a call."""

    instance: str
    revision: str
    started_at: float
    """Unix seconds at which the replica's process began."""
    ready_at: float
    """Unix seconds at which it could take calls."""
    policy_version: int | None = None
    weights_digest: str | None = None


class Timings(Wire):
    """Where a call's time went. Absolute times are Unix seconds of the replica that computed it."""

    started_at: float
    ended_at: float
    queue_s: float = Field(ge=0, default=0.0)
    """Waiting in the replica for an earlier call to finish."""
    load_s: float = Field(ge=0, default=0.0)
    """Reading weights and state."""
    compute_s: float = Field(ge=0, default=0.0)
    store_s: float = Field(ge=0, default=0.0)
    """Writing results, as far as it did not overlap with compute."""


class StageReply(Wire, Generic[OutputsT]):
    """The stored result of a stage call."""

    key: CallKey
    status: Literal["done", "continue"] = "done"
    outputs: OutputsT
    metrics: dict[str, float] = Field(default_factory=dict)
    served: ServedBy
    timings: Timings
