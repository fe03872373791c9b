"""What steps leave behind, in Redis."""

from collections.abc import Mapping, Sequence

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StaleFence
from shared.store import keys
from shared.store.records import PROFILE_TTL_S
from shared.store.redis_connection import Argument, RedisConnection, text

AT_ONCE = 512
"""Rows or completions of one command, so that no other client waits long for it."""


class RedisRecords:
    """``RecordStore`` in Redis. A step's records are written by ``RedisRuns.advance``, with its head."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def lengths(self, run: str, rows: Sequence[str]) -> dict[str, str]:
        """See ``RecordStore.lengths``."""
        found: dict[str, str] = {}
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            values = await self._redis.command("HMGET", keys.lengths(run), *some)
            found |= {row: text(value) for row, value in zip(some, values, strict=True) if value is not None}
        return found

    async def all_lengths(self, run: str) -> dict[str, str]:
        """See ``RecordStore.all_lengths``."""
        rows = [text(row) for row in await self._redis.command("HKEYS", keys.lengths(run))]
        return await self.lengths(run, sorted(rows))

    async def put_lengths(self, run: str, *, fence: int, lengths: Mapping[str, str]) -> None:
        """See ``RecordStore.put_lengths``."""
        rows = sorted(lengths)
        for start in range(0, len(rows), AT_ONCE):
            fields = [part for row in rows[start : start + AT_ONCE] for part in (row, lengths[row])]
            await self._put(run, keys.lengths(run), fence, fields)

    async def put_plan(self, run: str, step: int, *, fence: int, plan: bytes) -> None:
        """See ``RecordStore.put_plan``."""
        await self._put(run, keys.plans(run), fence, [step, plan])

    async def _put(self, run: str, key: str, fence: int, fields: Sequence[Argument]) -> None:
        current = int(await self._redis.script("put_records", [keys.fence(run), key], [fence, *fields]))
        if current > fence:
            raise StaleFence(f"run {run} has a newer owner: stop working for this one", fence=current)

    async def plan(self, run: str, step: int) -> bytes | None:
        """See ``RecordStore.plan``."""
        stored: bytes | None = await self._redis.command("HGET", keys.plans(run), step)
        return stored

    async def planned_steps(self, run: str) -> Sequence[int]:
        """See ``RecordStore.planned_steps``."""
        return await self._steps(keys.plans(run))

    async def traced_steps(self, run: str) -> Sequence[int]:
        """See ``RecordStore.traced_steps``."""
        return await self._steps(keys.traces(run))

    async def _steps(self, key: str) -> list[int]:
        return sorted(int(step) for step in await self._redis.command("HKEYS", key))

    async def trace(self, run: str, step: int) -> bytes | None:
        """See ``RecordStore.trace``."""
        stored: bytes | None = await self._redis.command("HGET", keys.traces(run), step)
        return stored

    async def put_profile(self, name: str, profile: str) -> None:
        """See ``RecordStore.put_profile``."""
        await self._redis.command("SET", keys.profile(name), profile, "EX", round(PROFILE_TTL_S))

    async def profile(self, name: str) -> str | None:
        """See ``RecordStore.profile``."""
        stored = await self._redis.command("GET", keys.profile(name))
        return None if stored is None else text(stored)

    async def completion_headers(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """See ``RecordStore.completion_headers``."""
        found: dict[SampleId, bytes] = {}
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            headers = await self._redis.script("headers", [keys.samples(batch)], [str(id) for id in some])
            found |= {id: header for id, header in zip(some, headers, strict=True) if header}
        return found
