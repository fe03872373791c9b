"""Runs and their event logs in Redis."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared.contracts.errors import CallConflict
from shared.store import keys
from shared.store.base import Event, Owned, RunRecord
from shared.store.redis_connection import Argument, RedisConnection, text

INFO = "info:"
IDEMPOTENCY_TTL_S = 7 * 24 * 3600
MAX_EVENTS = 100_000


class RedisRuns:
    """``RunStore`` in Redis."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def create(self, record: RunRecord, *, idempotency_key: str | None, digest: str) -> RunRecord:
        """See ``RunStore.create``."""
        if idempotency_key is not None:
            name, claim = keys.idempotency(idempotency_key), f"{digest} {record.id}"
            if not await self._redis.command("SET", name, claim, "NX", "EX", IDEMPOTENCY_TTL_S):
                earlier_digest, _, earlier_run = text(await self._redis.command("GET", name)).partition(" ")
                if earlier_digest != digest:
                    raise CallConflict(
                        f"idempotency key {idempotency_key!r} stands for another config (run {earlier_run}): "
                        "use a new key",
                        run=earlier_run,
                    )
                earlier = await self.get(earlier_run)
                if earlier is not None:
                    return earlier
                # The run that the key stood for was deleted, or its creator died in between: this one takes the key.
                await self._redis.command("SET", name, claim, "EX", IDEMPOTENCY_TTL_S)
        fields: list[Argument] = [
            "state",
            record.state,
            "created",
            record.created_at,
            "updated",
            record.updated_at,
        ]
        fields += ["config", json.dumps(record.config), "digest", digest]
        for key, value in record.info.items():
            fields += [INFO + key, json.dumps(value)]
        await self._redis.pipeline(
            [("HSET", keys.record(record.id), *fields), ("ZADD", keys.RUNS, record.created_at, record.id)]
        )
        return record

    async def get(self, run: str) -> RunRecord | None:
        """See ``RunStore.get``."""
        raw = await self._redis.command("HGETALL", keys.record(run))
        fields = {text(key): text(value) for key, value in raw.items()}
        if "state" not in fields:
            return None
        return RunRecord(
            id=run,
            state=fields["state"],
            created_at=float(fields["created"]),
            updated_at=float(fields["updated"]),
            config=json.loads(fields["config"]),
            info={k.removeprefix(INFO): json.loads(v) for k, v in fields.items() if k.startswith(INFO)},
            cancel_requested=fields.get("cancel") == "1",
        )

    async def list(self) -> Sequence[RunRecord]:
        """See ``RunStore.list``."""
        runs = [text(run) for run in await self._redis.command("ZRANGE", keys.RUNS, 0, -1)]
        records = [await self.get(run) for run in runs]
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
        arguments: list[Argument] = [to, -1 if fence is None else fence, len(allowed), *allowed]
        for key, value in (info or {}).items():
            arguments += [INFO + key, json.dumps(value)]
        return bool(await self._redis.script("transition", [keys.record(run), keys.fence(run)], arguments))

    async def request_cancel(self, run: str, *, requested: bool = True) -> None:
        """See ``RunStore.request_cancel``."""
        if requested:
            await self._redis.command("HSET", keys.record(run), "cancel", "1")
        else:
            await self._redis.command("HDEL", keys.record(run), "cancel")

    async def acquire(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """See ``RunStore.acquire``."""
        return await self._own("acquire", run, owner, ttl_s)

    async def renew(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        """See ``RunStore.renew``."""
        return await self._own("keep", run, owner, ttl_s)

    async def _own(self, script: str, run: str, owner: str, ttl_s: float) -> Owned | None:
        fence, cancel = await self._redis.script(
            script, [keys.owner(run), keys.fence(run), keys.record(run)], [owner, round(ttl_s * 1000)]
        )
        return Owned(int(fence), text(cancel) == "1") if int(fence) else None

    async def relinquish(self, run: str, *, owner: str) -> None:
        """See ``RunStore.relinquish``."""
        await self._redis.script("relinquish", [keys.owner(run)], [owner])

    async def head(self, run: str) -> bytes | None:
        """See ``RunStore.head``."""
        head: bytes | None = await self._redis.command("GET", keys.head(run))
        return head

    async def advance(
        self, run: str, *, fence: int, expected: bytes | None, manifest: bytes, history: Mapping[str, Any]
    ) -> bool:
        """See ``RunStore.advance``."""
        return bool(
            await self._redis.script(
                "advance",
                [keys.head(run), keys.fence(run), keys.history(run)],
                [
                    fence,
                    int(expected is not None),
                    expected or b"",
                    manifest,
                    json.dumps(history) if history else "",
                ],
            )
        )

    async def history(self, run: str) -> Sequence[Mapping[str, Any]]:
        """See ``RunStore.history``."""
        return [json.loads(line) for line in await self._redis.command("LRANGE", keys.history(run), 0, -1)]

    async def delete(self, run: str) -> None:
        """See ``RunStore.delete``."""
        doomed = await self._redis.keys(keys.prefix(run) + ":")
        if doomed:
            await self._redis.command("UNLINK", *doomed)
        await self._redis.command("ZREM", keys.RUNS, run)


class RedisEvents:
    """``EventLog`` as a Redis stream: its entry ids are what a reader resumes from."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def append(self, run: str, kind: str, data: Mapping[str, Any]) -> None:
        """See ``EventLog.append``."""
        await self._redis.command(
            "XADD", keys.events(run), "MAXLEN", "~", MAX_EVENTS, "*", "kind", kind, "data", json.dumps(data)
        )

    async def read(
        self, run: str, *, after: str = "0", wait_s: float = 0.0, limit: int = 1000
    ) -> Sequence[Event]:
        """See ``EventLog.read``."""
        block: list[Argument] = ["BLOCK", max(1, round(wait_s * 1000))] if wait_s > 0 else []
        reply = await self._redis.command("XREAD", "COUNT", limit, *block, "STREAMS", keys.events(run), after)
        if not reply:
            return []
        [(_, entries)] = reply.items() if isinstance(reply, dict) else reply
        return [
            Event(text(id), text(fields[b"kind"]), json.loads(fields[b"data"]))
            for id, fields in _entries(entries)
        ]


def _entries(entries: Any) -> list[tuple[Any, dict[bytes, bytes]]]:
    """Stream entries in one form, whichever the protocol version of the connection gives."""
    flat = (
        entries[0]
        if entries and isinstance(entries[0], list) and isinstance(entries[0][0], tuple)
        else entries
    )
    return [(id, dict(fields)) for id, fields in flat]
