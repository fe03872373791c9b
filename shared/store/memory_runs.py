"""Runs in memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.contracts.errors import CallConflict
from shared.store.base import Owned, RunRecord
from shared.store.memory_state import MemoryState
from shared.store.records import TRACE_BUDGET_BYTES, StepRecords


@dataclass(slots=True, kw_only=True)
class _Run:
    record: RunRecord
    owner: str | None = None
    """Who was given the current fence, and has not given up."""
    owned_until: float = 0.0
    head: bytes | None = None
    history: list[str] = field(default_factory=list)


class MemoryRuns:
    """``RunStore`` in memory, with the semantics of the Redis scripts. JSON is stored as text, so nothing is shared."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._runs: dict[str, _Run] = {}
        self._keyed: dict[str, tuple[str, str]] = {}
        """Digest and run that an idempotency key stands for."""

    async def create(self, record: RunRecord, *, idempotency_key: str | None, digest: str) -> RunRecord:
        """See ``RunStore.create``."""
        if idempotency_key is not None:
            earlier_digest, earlier_run = self._keyed.get(idempotency_key, ("", ""))
            if earlier_run in self._runs:
                if earlier_digest != digest:
                    raise CallConflict(
                        f"idempotency key {idempotency_key!r} stands for another config (run {earlier_run}): "
                        "use a new key",
                        run=earlier_run,
                    )
                return self._runs[earlier_run].record
            self._keyed[idempotency_key] = (digest, record.id)
        self._runs[record.id] = _Run(record=replace(record, config=_copy(record.config), info=_copy(record.info)))
        return record

    async def get(self, run: str) -> RunRecord | None:
        """See ``RunStore.get``."""
        return self._runs[run].record if run in self._runs else None

    async def list(self) -> Sequence[RunRecord]:
        """See ``RunStore.list``."""
        return sorted((run.record for run in self._runs.values()), key=lambda record: (record.created_at, record.id))

    async def transition(
        self,
        run: str,
        *,
        to: str,
        allowed: Sequence[str],
        info: Mapping[str, Any] | None = None,
        fence: int | None = None,
    ) -> bool:
        """See ``RunStore.transition``."""
        stored = self._runs.get(run)
        if fence is not None and fence < self._state.fence(run):
            return False
        if stored is None or stored.record.state not in allowed:
            return False
        merged = {**stored.record.info, **_copy(info or {})}
        stored.record = replace(stored.record, state=to, updated_at=self._state.now(), info=merged)
        return True

    async def request_cancel(self, run: str, *, requested: bool = True) -> None:
        """See ``RunStore.request_cancel``."""
        if run in self._runs:
            stored = self._runs[run]
            stored.record = replace(stored.record, cancel_requested=requested)

    async def acquire(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """See ``RunStore.acquire``."""
        stored = self._runs.get(run)
        if stored is None:
            return None
        if stored.owner not in (None, owner) and stored.owned_until > self._state.now():
            return None
        self._state.fences[run] = self._state.fence(run) + 1
        stored.owner = owner
        return self._extended(stored, ttl_s)

    async def renew(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """See ``RunStore.renew``."""
        stored = self._runs.get(run)
        if stored is None or stored.owner != owner:
            return None
        return self._extended(stored, ttl_s)

    def _extended(self, stored: _Run, ttl_s: float) -> Owned:
        stored.owned_until = self._state.now() + ttl_s
        return Owned(self._state.fence(stored.record.id), stored.record.cancel_requested)

    async def relinquish(self, run: str, *, owner: str) -> None:
        """See ``RunStore.relinquish``."""
        if run in self._runs and self._runs[run].owner == owner:
            self._runs[run].owner = None

    async def head(self, run: str) -> bytes | None:
        """See ``RunStore.head``."""
        return self._runs[run].head if run in self._runs else None

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
        """See ``RunStore.advance``."""
        stored = self._runs.get(run)
        if stored is None or fence < self._state.fence(run):
            return False
        if stored.head == manifest:
            return True
        if stored.head != expected:
            return False
        stored.head = manifest
        if history:
            stored.history.append(json.dumps(history))
        if records is not None:
            self._add(run, records)
        return True

    def _add(self, run: str, records: StepRecords) -> None:
        self._state.lengths.setdefault(run, {}).update(records.lengths)
        if records.plan is not None:
            self._state.plans.setdefault(run, {})[records.step] = records.plan
        if records.trace is not None:
            traces = self._state.traces.setdefault(run, {})
            traces[records.step] = records.trace
            # The newest stays, whatever it takes.
            while sum(map(len, traces.values())) > TRACE_BUDGET_BYTES and len(traces) > 1:
                del traces[min(traces)]

    async def history(self, run: str, *, last: int | None = None) -> Sequence[Mapping[str, Any]]:
        """See ``RunStore.history``."""
        lines = self._runs[run].history if run in self._runs else []
        return [json.loads(line) for line in (lines if last is None else lines[-last:])]

    async def delete(self, run: str) -> None:
        """See ``RunStore.delete``."""
        self._runs.pop(run, None)
        self._state.forget(run)


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(data))
    return copy
