"""The store in memory: for tests, and for simulation in virtual time."""

from collections.abc import Callable

from shared.store.base import Store
from shared.store.memory_calls import MemoryCalls
from shared.store.memory_events import MemoryEvents
from shared.store.memory_prefix_kv import MemoryPrefixKv
from shared.store.memory_records import MemoryRecords
from shared.store.memory_runs import MemoryRuns
from shared.store.memory_state import MemoryState
from shared.store.memory_work import MemoryWork


def memory_store(now: Callable[[], float]) -> Store:
    """All ports over one memory. ``now`` is the store's clock, in seconds: leases and claims end by it."""
    state = MemoryState(now)
    return Store(
        calls=MemoryCalls(state),
        work=MemoryWork(state),
        runs=MemoryRuns(state),
        events=MemoryEvents(state),
        records=MemoryRecords(state),
        prefix_kv=MemoryPrefixKv(),
    )
