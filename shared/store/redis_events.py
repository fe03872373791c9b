"""Event logs of runs in Redis."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared.store import keys
from shared.store.base import Event
from shared.store.event_ids import checked_event_id
from shared.store.redis_connection import RedisConnection, text

MAX_EVENTS = 100_000
LONGEST_BLOCK_S = 2.0
"""One wait on the server. Short, so that many readers take turns on the connections for waiting."""


class RedisEvents:
    """``EventLog`` as a Redis stream: its entry ids are what a reader resumes from."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def append(self, run: str, kind: str, data: Mapping[str, Any]) -> None:
        """See ``EventLog.append``."""
        await self._redis.command(
            "XADD", keys.events(run), "MAXLEN", "~", MAX_EVENTS, "*", "kind", kind, "data", json.dumps(data)
        )

    async def read(self, run: str, *, after: str = "0", wait_s: float = 0.0, limit: int = 1000) -> Sequence[Event]:
        """See ``EventLog.read``."""
        source = ("STREAMS", keys.events(run), checked_event_id(after))
        streams = await self._redis.command("XREAD", "COUNT", limit, *source)
        now = asyncio.get_running_loop().time
        wait_until = now() + wait_s
        while not streams and (left_s := wait_until - now()) > 0:
            block_ms = max(1, round(1000 * min(left_s, LONGEST_BLOCK_S)))
            streams = await self._redis.waiting_command("XREAD", "COUNT", limit, "BLOCK", block_ms, *source)
        return [
            Event(text(id), text(fields[b"kind"]), json.loads(fields[b"data"]))
            for _, entries in streams or []
            for id, fields in entries
        ]
