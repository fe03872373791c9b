"""What the in-memory adapters share: one store's content, as plain tables."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.contracts.call import BatchKey, CallKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StaleFence
from shared.contracts.rollout import WorkItem
from shared.store.base import Event


@dataclass(slots=True, kw_only=True)
class MemoryCall:
    """Claim and result of one stage call. The claim's fields are set while somebody holds it."""

    digest: str
    owner: str | None = None
    fence: int = 0
    expires_at: float = 0.0
    reply: bytes | None = None


@dataclass(slots=True)
class MemoryLease:
    """One work item in a worker's hands."""

    owner: str
    expires_at: float


@dataclass(slots=True, kw_only=True)
class MemoryBatch:
    """Everything stored for one batch."""

    calls: dict[CallKey, MemoryCall] = field(default_factory=dict)
    put_by: int | None = None
    """The fence that last put items."""
    queues: list[deque[WorkItem]] = field(default_factory=list)
    offered: deque[WorkItem] = field(default_factory=deque)
    leases: dict[WorkItem, MemoryLease] = field(default_factory=dict)
    deliveries: dict[WorkItem, int] = field(default_factory=dict)
    samples: dict[SampleId, bytes] = field(default_factory=dict)
    partials: dict[SampleId, bytes] = field(default_factory=dict)
    mail: list[tuple[int | None, str]] = field(default_factory=list)
    """(shard, message); ``None``: for all."""
    progress: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryState:
    """One store in memory. ``now`` is its clock, in seconds."""

    now: Callable[[], float]
    fences: dict[str, int] = field(default_factory=dict)
    batches: dict[BatchKey, MemoryBatch] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    lengths: dict[str, dict[str, str]] = field(default_factory=dict)
    """By run and row."""
    plans: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """By run and step."""
    traces: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """By run and step."""

    def fence(self, run: str) -> int:
        """The run's current fence; 0 before its first owner."""
        return self.fences.get(run, 0)

    def refuse_stale(self, run: str, fence: int) -> None:
        """Raise ``StaleFence`` if the run has a newer owner."""
        if fence < self.fence(run):
            raise StaleFence(f"run {run} has a newer owner: stop working for this one", fence=self.fence(run))

    def batch(self, key: BatchKey) -> MemoryBatch:
        """The batch, to write to."""
        return self.batches.setdefault(key, MemoryBatch())

    def existing(self, key: BatchKey) -> MemoryBatch:
        """The batch, to read from; an empty one is not kept."""
        return self.batches.get(key) or MemoryBatch()

    def forget(self, run: str) -> None:
        """Delete all that is stored for the run here."""
        self.fences.pop(run, None)
        self.events.pop(run, None)
        for kept in (self.lengths, self.plans, self.traces):
            kept.pop(run, None)
        for key in [key for key in self.batches if key.run == run]:
            del self.batches[key]
