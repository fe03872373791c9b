"""Blobs in Redis, in chunks, within a byte budget: for clusters whose functions share no volume."""

import asyncio
from collections.abc import Collection, Sequence
from mmap import mmap

from shared.contracts.errors import StoreRefused
from shared.contracts.policy import BlobRef
from shared.store import keys
from shared.store.blobs import make_ref, step_of, verified
from shared.store.redis_connection import RedisConnection, text

CHUNK_BYTES = 8 * 2**20
"""Well below Redis' limit of 512 MB a value; one chunk does not stall other clients noticeably."""


class RedisBlobs:
    """``BlobStore`` in Redis. Over its budget a run's blob is refused; nothing needed is evicted."""

    def __init__(self, redis: RedisConnection, *, budget_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._redis = redis
        self._budget_bytes = budget_bytes
        self._chunk_bytes = chunk_bytes

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore.put``."""
        # Off the loop: the digest of a large model would hold up heartbeats.
        ref = await asyncio.to_thread(make_ref, run, step, kind, data)
        # The size is noted before the bytes come, so that what a cut-off attempt leaves is counted and purged.
        used = int(await self._redis.script("reserve", [keys.blob_sizes(run)], [ref.id, len(data), self._budget_bytes]))
        if used:
            raise StoreRefused(
                f"run {run} would keep {used} bytes of blobs in Redis, over its budget of {self._budget_bytes}: "
                "for models of this size add deploy/components/large-redis, shared-volume or object-store",
                used_bytes=used,
                budget_bytes=self._budget_bytes,
            )
        chunks = self._chunks(ref)
        if int(await self._redis.command("EXISTS", *chunks)) == len(chunks):
            return ref
        for index, key in enumerate(chunks):
            await self._redis.command("SET", key, data[index * self._chunk_bytes : (index + 1) * self._chunk_bytes])
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore.get``."""
        chunks = await self._read(ref)
        return await asyncio.to_thread(lambda: verified(ref, None if chunks is None else b"".join(chunks)))

    async def view(self, ref: BlobRef) -> memoryview:
        """See ``BlobStore.view``. Chunks are copied one by one, and the event loop goes on in between."""
        chunks = await self._read(ref)
        return await asyncio.to_thread(_placed, ref, chunks)

    async def _read(self, ref: BlobRef) -> list[bytes] | None:
        """The chunks; ``None`` if one is missing, or all are of another size."""
        size = await self._redis.command("HGET", keys.blob_sizes(_run_of(ref.id)), ref.id)
        if size is None or int(size) != ref.num_bytes:
            return None
        chunks = await self._redis.pipeline([("GET", key) for key in self._chunks(ref)])
        return None if None in chunks else chunks

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore.purge``."""
        sizes = await self._redis.command("HGETALL", keys.blob_sizes(run))
        doomed = {
            text(name): int(size)
            for name, size in sizes.items()
            if step_of(text(name)) < before_step and text(name) not in keep
        }
        for name, size in doomed.items():
            await self._redis.pipeline(
                [("UNLINK", *self._chunk_keys(name, size)), ("HDEL", keys.blob_sizes(run), name)], atomic=True
            )
        return len(doomed)

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore.delete_run``."""
        await self.purge(run, before_step=2**31, keep=())

    def _chunks(self, ref: BlobRef) -> list[str]:
        return self._chunk_keys(ref.id, ref.num_bytes)

    def _chunk_keys(self, name: str, num_bytes: int) -> list[str]:
        num_chunks = max(1, -(-num_bytes // self._chunk_bytes))
        return [keys.blob_chunk(_run_of(name), name, index) for index in range(num_chunks)]


def _placed(ref: BlobRef, chunks: Sequence[bytes] | None) -> memoryview:
    """The chunks in writable memory, checked."""
    if chunks is None or not ref.num_bytes or sum(map(len, chunks)) != ref.num_bytes:
        return memoryview(bytearray(verified(ref, None if chunks is None else b"".join(chunks))))
    memory, end = mmap(-1, ref.num_bytes), 0
    for chunk in chunks:
        start, end = end, end + len(chunk)
        memory[start:end] = chunk
    return memoryview(verified(ref, memory))


def _run_of(blob_id: str) -> str:
    return blob_id.partition("/")[0]
