"""From URLs to a store: what each process calls once at its start."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.store.base import Store
from shared.store.blobs import BlobStore
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_calls import RedisCalls
from shared.store.redis_connection import RedisConnection
from shared.store.redis_events import RedisEvents
from shared.store.redis_runs import RedisRuns
from shared.store.redis_work import RedisWork


from shared.store.redis_prefix_kv import RedisPrefixKv
from shared.store.redis_records import RedisRecords
def redis_store(redis: RedisConnection) -> Store:
    """All five ports over one connection pool."""
    return Store(
        calls=RedisCalls(redis),
        work=RedisWork(redis),
        runs=RedisRuns(redis),
        events=RedisEvents(redis),
        records=RedisRecords(redis),
    )


def open_blobs(url: str, redis: RedisConnection, *, budget_bytes: int) -> BlobStore:
    """The blob store that a URL names: ``file:///folder``, or ``redis://`` for the store's own server.

    Raises ``ValueError`` for another URL.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "file" if parts.path and parts.netloc in ("", "localhost"):
            return DirectoryBlobs(Path(unquote(parts.path)))
        case "redis":
            return RedisBlobs(redis, budget_bytes=budget_bytes)
        case _:
            # Not the URL itself: it may hold a password.
            raise ValueError("RLHFLESS_BLOB_URL is neither file:///folder (an absolute path) nor redis://")
