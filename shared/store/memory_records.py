"""What steps leave behind, in memory."""

from collections.abc import Mapping, Sequence

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.store.memory_state import MemoryState
from shared.store.records import PROFILE_TTL_S

LENGTH_BYTES = 8
"""A safetensors file starts with the length of its header, little-endian."""


class MemoryRecords:
    """``RecordStore`` in memory. A step's records are written by ``MemoryRuns.advance``, with its head."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._profiles: dict[str, tuple[str, float]] = {}
        """Profile and the time at which it is forgotten."""

    async def lengths(self, run: str, rows: Sequence[str]) -> dict[str, str]:
        """See ``RecordStore.lengths``."""
        stored = self._state.lengths.get(run, {})
        return {row: stored[row] for row in rows if row in stored}

    async def all_lengths(self, run: str) -> dict[str, str]:
        """See ``RecordStore.all_lengths``."""
        return dict(sorted(self._state.lengths.get(run, {}).items()))

    async def put_lengths(self, run: str, *, fence: int, lengths: Mapping[str, str]) -> None:
        """See ``RecordStore.put_lengths``."""
        self._state.refuse_stale(run, fence)
        self._state.lengths.setdefault(run, {}).update(lengths)

    async def put_plan(self, run: str, step: int, *, fence: int, plan: bytes) -> None:
        """See ``RecordStore.put_plan``."""
        self._state.refuse_stale(run, fence)
        self._state.plans.setdefault(run, {})[step] = plan

    async def plan(self, run: str, step: int) -> bytes | None:
        """See ``RecordStore.plan``."""
        return self._state.plans.get(run, {}).get(step)

    async def planned_steps(self, run: str) -> Sequence[int]:
        """See ``RecordStore.planned_steps``."""
        return sorted(self._state.plans.get(run, {}))

    async def traced_steps(self, run: str) -> Sequence[int]:
        """See ``RecordStore.traced_steps``."""
        return sorted(self._state.traces.get(run, {}))

    async def trace(self, run: str, step: int) -> bytes | None:
        """See ``RecordStore.trace``."""
        return self._state.traces.get(run, {}).get(step)

    async def put_profile(self, name: str, profile: str) -> None:
        """See ``RecordStore.put_profile``."""
        self._profiles[name] = (profile, self._state.now() + PROFILE_TTL_S)

    async def profile(self, name: str) -> str | None:
        """See ``RecordStore.profile``."""
        profile, forgotten_at = self._profiles.get(name, (None, 0.0))
        return profile if self._state.now() < forgotten_at else None

    async def completion_headers(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """See ``RecordStore.completion_headers``."""
        samples = self._state.existing(batch).samples
        return {id: _header(samples[id]) for id in ids if id in samples}


def _header(data: bytes) -> bytes:
    return data[: LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")]
