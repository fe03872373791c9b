"""Event logs of runs in memory."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared.store.base import Event
from shared.store.event_ids import checked_event_id
from shared.store.memory_state import MemoryState


class MemoryEvents:
    """``EventLog`` in memory. Ids have the form of a Redis stream's."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._appended = asyncio.Condition()

    async def append(self, run: str, kind: str, data: Mapping[str, Any]) -> None:
        """See ``EventLog.append``."""
        log = self._state.events.setdefault(run, [])
        now_ms = round(1000 * self._state.now())
        last_ms, last_number = _place(log[-1].id) if log else (-1, 0)
        place = (now_ms, 0) if now_ms > last_ms else (last_ms, last_number + 1)
        log.append(Event(f"{place[0]}-{place[1]}", kind, json.loads(json.dumps(data))))
        async with self._appended:
            self._appended.notify_all()

    async def read(self, run: str, *, after: str = "0", wait_s: float = 0.0, limit: int = 1000) -> Sequence[Event]:
        """See ``EventLog.read``."""
        place = _place(checked_event_id(after))
        now = asyncio.get_running_loop().time
        wait_until = now() + wait_s
        while True:
            found = [event for event in self._state.events.get(run, ()) if _place(event.id) > place][:limit]
            if found or now() >= wait_until:
                return found
            try:
                async with asyncio.timeout_at(wait_until), self._appended:
                    await self._appended.wait()
            except TimeoutError:
                continue


def _place(id: str) -> tuple[int, int]:
    milliseconds, _, number = id.partition("-")
    return int(milliseconds), int(number or 0)
