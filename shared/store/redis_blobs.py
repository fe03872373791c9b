"""Blobs in Redis, in chunks, within a byte budget: for clusters whose functions share no volume."""

from collections.abc import Collection

from shared.contracts.errors import StoreRefused
from shared.contracts.policy import BlobRef
from shared.store import keys
from shared.store.blobs import make_ref, step_of, verified
from shared.store.redis_connection import RedisConnection, text

CHUNK_BYTES = 8 * 2**20
"""Well below Redis' limit of 512 MB a value; one chunk does not stall other clients noticeably."""


class RedisBlobs:
    """``BlobStore`` in Redis. Over its budget a run's blob is refused; nothing needed is evicted."""

    def __init__(self, redis: RedisConnection, *, budget_bytes: int) -> None:
        self._redis = redis
        self._budget_bytes = budget_bytes

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore.put``."""
        ref = make_ref(run, step, kind, data)
        if await self._redis.command("HEXISTS", keys.blob_names(run), ref.id):
            return ref
        used = int(await self._redis.command("INCRBY", keys.blob_bytes(run), len(data)))
        try:
            if used > self._budget_bytes:
                raise StoreRefused(
                    f"run {run} would keep {used} bytes of blobs in Redis, over its budget of {self._budget_bytes}: "
                    "use a shared volume or an object store for models of this size",
                    used_bytes=used,
                    budget_bytes=self._budget_bytes,
                )
            for index, start in enumerate(range(0, max(1, len(data)), CHUNK_BYTES)):
                chunk = data[start : start + CHUNK_BYTES]
                await self._redis.command("SET", keys.blob_chunk(run, ref.id, index), chunk)
        except BaseException:
            await self._redis.command("DECRBY", keys.blob_bytes(run), len(data))
            raise
        if not await self._redis.command("HSETNX", keys.blob_names(run), ref.id, len(data)):
            await self._redis.command("DECRBY", keys.blob_bytes(run), len(data))
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore.get``."""
        run = ref.id.partition("/")[0]
        num_chunks = _num_chunks(ref.num_bytes)
        chunks = await self._redis.pipeline(
            [("GET", keys.blob_chunk(run, ref.id, index)) for index in range(num_chunks)]
        )
        complete = all(chunk is not None for chunk in chunks)
        return verified(ref, b"".join(chunks) if complete else None)

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore.purge``."""
        sizes = await self._redis.command("HGETALL", keys.blob_names(run))
        doomed = {
            text(name): int(size)
            for name, size in sizes.items()
            if step_of(text(name)) < before_step and text(name) not in keep
        }
        for name, size in doomed.items():
            chunks = [keys.blob_chunk(run, name, index) for index in range(_num_chunks(size))]
            await self._redis.pipeline(
                [
                    ("HDEL", keys.blob_names(run), name),
                    ("UNLINK", *chunks),
                    ("DECRBY", keys.blob_bytes(run), size),
                ]
            )
        return len(doomed)

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore.delete_run``."""
        await self.purge(run, before_step=2**31, keep=())


def _num_chunks(num_bytes: int) -> int:
    return max(1, -(-num_bytes // CHUNK_BYTES))
