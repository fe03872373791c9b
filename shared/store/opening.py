"""From URLs to a store: what each process calls once at its start."""

from pathlib import Path
from urllib.parse import urlsplit

from shared.store.base import Store
from shared.store.blobs import BlobStore
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_calls import RedisCalls
from shared.store.redis_connection import RedisConnection
from shared.store.redis_runs import RedisEvents, RedisRuns
from shared.store.redis_work import RedisWork


def redis_store(redis: RedisConnection) -> Store:
    """All four ports over one connection pool."""
    return Store(
        calls=RedisCalls(redis), work=RedisWork(redis), runs=RedisRuns(redis), events=RedisEvents(redis)
    )


def open_blobs(url: str, redis: RedisConnection, *, budget_bytes: int) -> BlobStore:
    """The blob store that a URL names: ``file:///folder``, or ``redis://`` for the store's own server."""
    parts = urlsplit(url)
    match parts.scheme:
        case "file" if parts.path:
            return DirectoryBlobs(Path(parts.path))
        case "redis":
            return RedisBlobs(redis, budget_bytes=budget_bytes)
        case _:
            raise ValueError(f"RLHFLESS_BLOB_URL {url!r} is neither file:///folder nor redis://")
