"""Runs in Redis."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.contracts.errors import CallConflict
from shared.store import keys
from shared.store.base import Owned, RunRecord
from shared.store.records import TRACE_BUDGET_BYTES, StepRecords
from shared.store.redis_connection import Argument, RedisConnection, text

INFO = "info:"
IDEMPOTENCY_TTL_S = 7 * 24 * 3600
UNLINK_AT_ONCE = 1000
"""Keys in one command of a deletion."""


class RedisRuns:
    """``RunStore`` in Redis."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def create(self, record: RunRecord, *, idempotency_key: str | None, digest: str) -> RunRecord:
        """See ``RunStore.create``."""
        # The record comes before its key and its place in the list: whoever finds one of those finds the record.
        await self._redis.command("HSET", keys.record(record.id), *_fields(record, digest))
        if idempotency_key is not None:
            earlier = await self._take_key(record, idempotency_key, digest)
            if earlier is not None:
                await self._redis.command("UNLINK", keys.record(record.id))
                if earlier.digest != digest:
                    raise CallConflict(
                        f"idempotency key {idempotency_key!r} stands for another config (run {earlier.record.id}): "
                        "use a new key",
                        run=earlier.record.id,
                    )
                record = earlier.record
        await self._redis.command("ZADD", keys.RUNS, record.created_at, record.id)
        return record

    async def _take_key(self, record: RunRecord, idempotency_key: str, digest: str) -> "_Keyed | None":
        """Let the key stand for the run, or return the one that it stands for. A deleted run has no claim to it."""
        name, claim = keys.idempotency(idempotency_key), f"{digest} {record.id}"
        while not await self._redis.command("SET", name, claim, "NX", "EX", IDEMPOTENCY_TTL_S):
            holder = await self._redis.command("GET", name)
            if holder is None:
                continue
            earlier_digest, _, earlier_run = text(holder).partition(" ")
            if earlier_run == record.id:
                return None
            earlier = await self.get(earlier_run)
            if earlier is not None:
                return _Keyed(earlier, earlier_digest)
            if await self._redis.script("swap", [name], [holder, claim, IDEMPOTENCY_TTL_S]):
                return None
        return None

    async def get(self, run: str) -> RunRecord | None:
        """See ``RunStore.get``."""
        return _record(run, await self._redis.command("HGETALL", keys.record(run)))

    async def list(self) -> Sequence[RunRecord]:
        """See ``RunStore.list``."""
        runs = [text(run) for run in await self._redis.command("ZRANGE", keys.RUNS, 0, -1)]
        if not runs:
            return []
        stored = await self._redis.pipeline([("HGETALL", keys.record(run)) for run in runs])
        records = [_record(run, fields) for run, fields in zip(runs, stored, strict=True)]
        return [record for record in records if record is not None]

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
        arguments: list[Argument] = [to, -1 if fence is None else fence, secrets.token_hex(8), len(allowed), *allowed]
        for key, value in (info or {}).items():
            arguments += [INFO + key, json.dumps(value)]
        return bool(await self._redis.script("transition", [keys.record(run), keys.fence(run)], arguments))

    async def request_cancel(self, run: str, *, requested: bool = True) -> None:
        """See ``RunStore.request_cancel``."""
        await self._redis.script("request_cancel", [keys.record(run)], [int(requested)])

    async def acquire(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """See ``RunStore.acquire``."""
        return await self._own("acquire", run, owner, ttl_s)

    async def renew(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """See ``RunStore.renew``."""
        return await self._own("keep", run, owner, ttl_s)

    async def _own(self, script: str, run: str, owner: str, ttl_s: float) -> Owned | None:
        fence, cancel = await self._redis.script(
            script,
            [keys.owner(run), keys.fence(run), keys.record(run), keys.fenced(run)],
            [owner, round(ttl_s * 1000)],
        )
        return Owned(int(fence), text(cancel) == "1") if int(fence) else None

    async def relinquish(self, run: str, *, owner: str) -> None:
        """See ``RunStore.relinquish``."""
        await self._redis.script("relinquish", [keys.owner(run), keys.fenced(run)], [owner])

    async def head(self, run: str) -> bytes | None:
        """See ``RunStore.head``."""
        head: bytes | None = await self._redis.command("GET", keys.head(run))
        return head

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
        names = (
            keys.head,
            keys.fence,
            keys.history,
            keys.lengths,
            keys.plans,
            keys.traces,
            keys.trace_sizes,
            keys.trace_bytes,
        )
        arguments: list[Argument] = [fence, int(expected is not None), expected or b"", manifest]
        arguments += [json.dumps(history) if history else "", TRACE_BUDGET_BYTES]
        if records is None:
            arguments += [0, "", b""]
        else:
            arguments += [records.step, records.plan or b"", records.trace or b""]
            for row, lengths in records.lengths.items():
                arguments += [row, lengths]
        return bool(await self._redis.script("advance", [name(run) for name in names], arguments))

    async def history(self, run: str, *, last: int | None = None) -> Sequence[Mapping[str, Any]]:
        """See ``RunStore.history``."""
        first = 0 if last is None else -last
        return [json.loads(line) for line in await self._redis.command("LRANGE", keys.history(run), first, -1)]

    async def delete(self, run: str) -> None:
        """See ``RunStore.delete``."""
        doomed = await self._redis.keys(keys.prefix(run) + ":")
        # The record goes last: a deletion that is cut short leaves a run that can be deleted again.
        doomed.sort(key=lambda key: key == keys.record(run))
        for start in range(0, len(doomed), UNLINK_AT_ONCE):
            await self._redis.command("UNLINK", *doomed[start : start + UNLINK_AT_ONCE])
        await self._redis.command("ZREM", keys.RUNS, run)


@dataclass(frozen=True, slots=True)
class _Keyed:
    """The run that an idempotency key stands for, and the digest of its config."""

    record: RunRecord
    digest: str


def _fields(record: RunRecord, digest: str) -> list[Argument]:
    fields: list[Argument] = ["state", record.state, "created", record.created_at, "updated", record.updated_at]
    fields += ["config", json.dumps(record.config), "digest", digest]
    if record.cancel_requested:
        fields += ["cancel", "1"]
    for key, value in record.info.items():
        fields += [INFO + key, json.dumps(value)]
    return fields


def _record(run: str, raw: Mapping[bytes, bytes]) -> RunRecord | None:
    fields = {text(key): text(value) for key, value in raw.items()}
    if "state" not in fields:
        return None
    return RunRecord(
        id=run,
        state=fields["state"],
        created_at=float(fields["created"]),
        updated_at=float(fields["updated"]),
        config=json.loads(fields["config"]),
        info={key.removeprefix(INFO): json.loads(value) for key, value in fields.items() if key.startswith(INFO)},
        cancel_requested=fields.get("cancel") == "1",
    )
