"""Prefix KV bytes in Redis, with an expiry, and never so many that the server's other data are in danger."""

from collections.abc import Collection

from shared.contracts.errors import MissingBlob, StoreRefused
from shared.contracts.policy import BlobRef
from shared.store import keys
from shared.store.prefix_kv import PREFIX_KV_TTL_S
from shared.store.redis_connection import RedisConnection

MAX_FILLED = 0.75
"""Share of a server's memory up to which it takes droppable bytes, if it evicts nothing by itself: the rest is for what
a run needs."""


class RedisBytes:
    """``DroppableBytes`` as one value each; who writes them cuts them to a size that stalls nobody."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def put(self, ref: BlobRef, data: bytes | memoryview) -> None:
        """See ``DroppableBytes.put``."""
        await self._refuse_beyond_headroom(len(data))
        await self._redis.command("SET", keys.prefix_kv_bytes(ref.id), data, "PX", int(PREFIX_KV_TTL_S * 1000))

    async def get(self, ref: BlobRef) -> memoryview:
        """See ``DroppableBytes.get``."""
        data = await self._redis.command("GET", keys.prefix_kv_bytes(ref.id))
        if data is None:
            raise MissingBlob(f"prefix KV {ref.id} was dropped", blob=ref.id)
        return memoryview(bytearray(data))

    async def delete(self, ids: Collection[str]) -> None:
        """See ``DroppableBytes.delete``."""
        if ids:
            await self._redis.command("UNLINK", *(keys.prefix_kv_bytes(id) for id in ids))

    async def delete_folder(self, folder: str) -> None:
        """Leaves what is there to its expiry: a search through all keys of a server would stall it."""

    async def _refuse_beyond_headroom(self, num_bytes: int) -> None:
        memory = await self._redis.command("INFO", "memory")
        limit = int(memory.get("maxmemory", 0))
        if limit == 0 or memory.get("maxmemory_policy") != "noeviction":
            return
        if int(memory["used_memory"]) + num_bytes > MAX_FILLED * limit:
            raise StoreRefused(
                f"Redis holds {memory['used_memory']} of {limit} bytes: the rest is kept for what runs need. "
                "Set REDIS_CACHE_URL to a server that evicts, or raise maxmemory"
            )
