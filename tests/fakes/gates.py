"""A store behind a gate: what a process sees of it when it is lost, or when the process itself is dead."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from shared.contracts.errors import StoreUnavailable
from shared.store.base import CallStore, EventLog, RunStore, Store, WorkStore
from shared.store.blobs import BlobStore
from shared.store.records import RecordStore

Gate = Callable[[str, bool], None]
"""Called before and after (True) every operation, with its name. Raises to refuse it, or to lose its answer."""


class Gated:
    """Any port, with a gate around each of its operations."""

    def __init__(self, port: object, gate: Gate) -> None:
        self._port = port
        self._gate = gate

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        operation = getattr(self._port, name)

        async def guarded(*arguments: Any, **named: Any) -> Any:
            self._gate(name, False)
            answer = await operation(*arguments, **named)
            self._gate(name, True)
            return answer

        return guarded


def gated_store(store: Store, gate: Gate) -> Store:
    """The store behind a gate."""
    return Store(
        calls=cast(CallStore, Gated(store.calls, gate)),
        work=cast(WorkStore, Gated(store.work, gate)),
        runs=cast(RunStore, Gated(store.runs, gate)),
        events=cast(EventLog, Gated(store.events, gate)),
        records=cast(RecordStore, Gated(store.records, gate)),
    )


def gated_blobs(blobs: BlobStore, gate: Gate) -> BlobStore:
    """The blob store behind a gate."""
    return cast(BlobStore, Gated(blobs, gate))


class Outage:
    """A gate that can be closed for a while: nobody reaches the store then."""

    def __init__(self) -> None:
        self.is_on = False
        self.num_refused = 0

    def __call__(self, operation: str, done: bool) -> None:
        """Refuse while the outage is on."""
        if self.is_on:
            self.num_refused += 1
            raise StoreUnavailable("the store did not answer")
