"""The store ports: what passes between functions and controller, without saying where it is kept.

Five narrow ports over one store: stage calls (claims and results), work (items and completions of a batch), runs
(ownership, head, history), events, and records (``shared.store.records``). Adapters: Redis, and memory for tests and
simulation. All times are the store's own. A lost connection is the adapter's business: it repeats a call until it is
answered, and repeating changes nothing.
``StoreUnavailable`` and ``StoreRefused`` can come from every method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.contracts.call import BatchKey, CallKey
from shared.contracts.completion import SampleId
from shared.contracts.rollout import WorkItem
from shared.store.prefix_kv import NoPrefixKv, PrefixKvStore
from shared.store.records import RecordStore, StepRecords


@dataclass(frozen=True, slots=True)
class Granted:
    """The caller holds the claim and computes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The call has a result already."""

    reply: bytes


@dataclass(frozen=True, slots=True)
class Busy:
    """Another owner holds the claim for at most this long without a sign of life."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key stands for a call with another body."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The run has an owner with a higher fence."""

    fence: int


ClaimOutcome = Granted | Stored | Busy | Conflict | Stale
CommitOutcome = Granted | Stored | Busy | Stale
"""``Granted``: this commit won. ``Stored``: an earlier one did, here is its reply. ``Busy``: the claim is another's."""


class CallStore(Protocol):
    """Claims on stage calls and their results (DESIGN, rules 1 and 4).

    ``owner`` names one attempt at the call: the claim of an owner is granted to it again.
    """

    async def claim(self, key: CallKey, *, digest: str, owner: str, fence: int, ttl_s: float) -> ClaimOutcome:
        """Take the key, or say why not. A higher fence takes it from a lower one at once."""
        ...

    async def renew(self, key: CallKey, *, owner: str, fence: int, ttl_s: float) -> bool:
        """Extend the claim. False if it is no longer the owner's: stop computing."""
        ...

    async def commit(self, key: CallKey, *, owner: str, fence: int, reply: bytes) -> CommitOutcome:
        """Store the result, unless the claim or the fence is lost. An expired claim that nobody took still counts."""
        ...

    async def release(self, key: CallKey, *, owner: str) -> None:
        """Give the claim back without a result."""
        ...


@dataclass(frozen=True, slots=True)
class LeasedItem:
    """A work item in this worker's hands. ``delivery`` counts how often it was handed out, from 1."""

    item: WorkItem
    delivery: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Answer to a request for work. ``num_elsewhere`` items are in other workers' hands."""

    items: tuple[LeasedItem, ...]
    num_elsewhere: int
    poisoned: WorkItem | None = None
    """An item that was handed out as often as allowed and never finished."""
    num_queued: int = 0
    """Items that still wait: the actor's own, and those offered to all."""


@dataclass(frozen=True, slots=True)
class Part:
    """Samples of an item that go on by themselves, at one actor or, for ``None``, at any."""

    shard: int | None
    item: WorkItem


@dataclass(frozen=True, slots=True)
class Mail:
    """Messages for one worker, oldest first, and where to read on."""

    messages: tuple[str, ...]
    next: int


class WorkStore(Protocol):
    """Work items, completions, mail and progress of one batch (DESIGN, rule 6)."""

    async def put_items(
        self,
        batch: BatchKey,
        *,
        fence: int,
        assigned: Sequence[Sequence[WorkItem]],
        offered: Sequence[WorkItem],
    ) -> None:
        """Queue the batch's items: each actor's own, then those offered to all. Only the first call queues.

        A newer owner's call offers again what the workers of its predecessor hold, for these can commit nothing any
        more, and forgets how often items were handed out, so that a run resumes after a poisoned one, and what those
        workers said of their progress.
        Raises ``StaleFence``.
        """
        ...

    async def lease(
        self,
        batch: BatchKey,
        *,
        shard: int,
        owner: str,
        fence: int,
        ttl_s: float,
        max_items: int,
        max_deliveries: int,
    ) -> Lease:
        """Hand out items: the actor's own, then offered ones, then others' expired leases.

        A worker that would be idle gets half of what waits for each other actor too; the rest stays for that actor,
        which may be about to come for it. ``owner`` names one attempt of one worker; it keeps what it holds until it
        finishes or returns it. An item that was lost with its worker and may be handed out only once more goes alone,
        to a worker that holds nothing: so whatever is lost then is to blame, not what shared a worker with it. After
        ``max_deliveries`` losses the item is named as poisoned and nothing is handed out. Raises ``StaleFence``.
        """
        ...

    async def renew_leases(self, batch: BatchKey, *, owner: str, ttl_s: float) -> int:
        """Extend all leases of the owner; returns how many it holds."""
        ...

    async def finish_item(self, batch: BatchKey, *, owner: str, item: WorkItem) -> None:
        """The item's samples are all committed; forget its lease."""
        ...

    async def return_item(
        self, batch: BatchKey, *, owner: str, item: WorkItem, parts: Sequence[Part] | None = None
    ) -> None:
        """Give an unfinished item back; the hand-out does not count against it.

        In ``parts``, each of which waits for its actor and counts as handed out as often as the item; without, it is
        offered to all as it is.
        """
        ...

    async def commit_samples(self, batch: BatchKey, *, fence: int, samples: Mapping[SampleId, bytes]) -> int:
        """Store completions; the first commit of a sample wins. Returns how many were new, fewer if the store was lost
        meanwhile and may have had them already. Raises ``StaleFence``.
        """
        ...

    async def save_partials(self, batch: BatchKey, *, fence: int, partials: Mapping[SampleId, bytes]) -> None:
        """Keep unfinished completions for whoever continues them. Raises ``StaleFence``."""
        ...

    async def partials(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """Saved unfinished completions among ``ids``."""
        ...

    async def committed(self, batch: BatchKey, ids: Sequence[SampleId]) -> set[SampleId]:
        """Which of ``ids`` are stored."""
        ...

    async def samples(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """Stored completions among ``ids``."""
        ...

    async def num_samples(self, batch: BatchKey) -> int:
        """How many completions of the batch are stored."""
        ...

    async def post(self, batch: BatchKey, *, shard: int | None, message: str) -> None:
        """Leave a message for one worker of the batch, or for all; twice, if the store was lost before it had
        answered.
        """
        ...

    async def mail(self, batch: BatchKey, *, shard: int, after: int = 0) -> Mail:
        """The messages for this worker and for all; ``after`` is where an earlier look ended."""
        ...

    async def report(self, batch: BatchKey, *, shard: int, fence: int, progress: bytes) -> None:
        """Keep what a worker says of its work, in place of what it said before. Raises ``StaleFence``."""
        ...

    async def progress(self, batch: BatchKey) -> dict[int, bytes]:
        """What each worker last said of its work, by shard."""
        ...

    async def offer_queues(self, batch: BatchKey, *, shards: Sequence[int]) -> int:
        """Offer to all what waits for these actors, which come for nothing any more; returns how many items it was."""
        ...

    async def num_queued(self, batch: BatchKey) -> int:
        """Items that wait for a worker, in whatever queue. Those in workers' hands, lost ones too, are not counted."""
        ...

    async def sweep(self, batch: BatchKey) -> None:
        """Delete all that was stored for the batch: items, completions, calls, mail and reports."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as stored. ``config`` and ``info`` are JSON objects."""

    id: str
    state: str
    created_at: float
    updated_at: float
    config: Mapping[str, Any]
    info: Mapping[str, Any]
    """What the loop notes: step, error, totals. Free of secrets."""
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class Owned:
    """Ownership of a run: its fence, and whether somebody asked for it to be cancelled."""

    fence: int
    cancel_requested: bool


class RunStore(Protocol):
    """Runs: records, ownership, head and history (DESIGN, rules 4 and 5)."""

    async def create(self, record: RunRecord, *, idempotency_key: str | None, digest: str) -> RunRecord:
        """Add the run, or return the one that the key stands for. Raises ``CallConflict`` for another digest.

        A deleted run frees its key. The record's id is new.
        """
        ...

    async def get(self, run: str) -> RunRecord | None: ...

    async def list(self) -> Sequence[RunRecord]:
        """All runs, oldest first."""
        ...

    async def transition(
        self,
        run: str,
        *,
        to: str,
        allowed: Sequence[str],
        info: Mapping[str, Any] | None = None,
        fence: int | None = None,
    ) -> bool:
        """Change the state, and merge ``info``, if it is one of ``allowed`` and the fence is current."""
        ...

    async def request_cancel(self, run: str, *, requested: bool = True) -> None:
        """Ask the run's owner to cancel it."""
        ...

    async def acquire(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """Own the run with a new, higher fence; ``None`` while another owner is alive, or without such a run."""
        ...

    async def renew(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """Stay the owner; ``None`` if ownership is lost: somebody else had it since, even if it is free again."""
        ...

    async def relinquish(self, run: str, *, owner: str) -> None:
        """Give up ownership, if held."""
        ...

    async def head(self, run: str) -> bytes | None:
        """The run's current manifest; ``None`` before the first."""
        ...

    async def advance(
        self,
        run: str,
        *,
        fence: int,
        expected: bytes | None,
        manifest: bytes,
        history: Mapping[str, Any],
        records: StepRecords | None = None,
    ) -> bool:
        """Move the head from ``expected`` to ``manifest``, add a line of history (an empty one: none) and the step's
        records, all or nothing. True if the head is ``manifest`` now, also where an earlier call put it there.
        """
        ...

    async def history(self, run: str, *, last: int | None = None) -> Sequence[Mapping[str, Any]]:
        """One line per finished step, oldest first; with ``last`` only so many, the newest."""
        ...

    async def delete(self, run: str) -> None:
        """Delete everything stored for the run."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a run's event log."""

    id: str
    kind: str
    data: Mapping[str, Any]


class EventLog(Protocol):
    """What happened in a run, in order, for people and programs that follow it."""

    async def append(self, run: str, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event; twice, if the store was lost before it had answered."""
        ...

    async def read(self, run: str, *, after: str = "0", wait_s: float = 0.0, limit: int = 1000) -> Sequence[Event]:
        """Events after the given id, oldest first; waits up to ``wait_s`` for the first one.

        Raises ``InvalidInput`` for an id that no log gives.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The ports of one store, together."""

    calls: CallStore
    work: WorkStore
    runs: RunStore
    events: EventLog
    records: RecordStore
    prefix_kv: PrefixKvStore = field(default_factory=NoPrefixKv)
    """What may be lost: usually on a server of its own, that evicts."""
