"""Claims and results of stage calls in Redis."""

from shared.contracts.call import CallKey
from shared.store import keys
from shared.store.base import Busy, ClaimOutcome, CommitOutcome, Conflict, Granted, Stale, Stored
from shared.store.redis_connection import RedisConnection, text


class RedisCalls:
    """``CallStore`` in Redis: each operation is one script, so each is one atomic step in Redis time."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def claim(self, key: CallKey, *, digest: str, owner: str, fence: int, ttl_s: float) -> ClaimOutcome:
        """See ``CallStore.claim``."""
        verdict, value = await self._redis.script(
            "claim",
            [keys.call(key), keys.fence(key.run), keys.batch_index(key.batch)],
            [digest, owner, fence, round(ttl_s * 1000)],
        )
        match text(verdict):
            case "granted":
                return Granted()
            case "stored":
                return Stored(value)
            case "busy":
                return Busy(int(value) / 1000)
            case "conflict":
                return Conflict()
            case _:
                return Stale(int(value))

    async def renew(self, key: CallKey, *, owner: str, fence: int, ttl_s: float) -> bool:
        """See ``CallStore.renew``."""
        return bool(
            await self._redis.script(
                "renew", [keys.call(key), keys.fence(key.run)], [owner, fence, round(ttl_s * 1000)]
            )
        )

    async def commit(self, key: CallKey, *, owner: str, fence: int, reply: bytes) -> CommitOutcome:
        """See ``CallStore.commit``."""
        verdict, value = await self._redis.script(
            "commit", [keys.call(key), keys.fence(key.run)], [owner, fence, reply]
        )
        match text(verdict):
            case "granted":
                return Granted()
            case "stored":
                return Stored(value)
            case "busy":
                return Busy(int(value) / 1000)
            case _:
                return Stale(int(value))

    async def release(self, key: CallKey, *, owner: str) -> None:
        """See ``CallStore.release``."""
        await self._redis.script("release", [keys.call(key)], [owner])
