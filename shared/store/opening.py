"""From URLs to a store: what each process calls once at its start."""

from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from shared.store.base import Store
from shared.store.blobs import BlobStore
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.directory_bytes import DirectoryBytes
from shared.store.droppable_bytes import DroppableBytes
from shared.store.prefix_kv import NoPrefixKv, PrefixKvStore
from shared.store.prefix_kv_settings import PrefixKvSettings
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_bytes import RedisBytes
from shared.store.redis_calls import RedisCalls
from shared.store.redis_connection import RedisConnection
from shared.store.redis_events import RedisEvents
from shared.store.redis_prefix_kv import RedisPrefixKv
from shared.store.redis_records import RedisRecords
from shared.store.redis_runs import RedisRuns
from shared.store.redis_work import RedisWork

OBJECT_STORES = frozenset({"s3", "gs", "gcs", "az", "abfs", "abfss", "oss", "memory"})
"""Schemes of fsspec that blobs and prefix KV may be kept under; ``memory`` is for tests."""
CACHE_PATIENCE_S = 1.0
"""How long a lost cache is waited for: what it holds can be computed."""


def redis_store(redis: RedisConnection, prefix_kv: PrefixKvStore | None = None) -> Store:
    """The ports over one connection pool. Without ``prefix_kv`` none is kept."""
    return Store(
        calls=RedisCalls(redis),
        work=RedisWork(redis),
        runs=RedisRuns(redis),
        events=RedisEvents(redis),
        records=RedisRecords(redis),
        prefix_kv=prefix_kv or NoPrefixKv(),
    )


def open_blobs(url: str, redis: RedisConnection, *, budget_bytes: int) -> BlobStore:
    """The blob store that a URL names: ``file:///folder``, ``redis://`` for the store's own server, or an object store
    such as ``s3://bucket/folder``.

    Raises ``ValueError`` for another URL.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "file" if parts.path and parts.netloc in ("", "localhost"):
            return DirectoryBlobs(Path(unquote(parts.path)))
        case "redis":
            return RedisBlobs(redis, budget_bytes=budget_bytes)
        case _ if _is_object_store(parts):
            # Not every image has the library.
            from shared.store.object_blobs import ObjectBlobs

            return ObjectBlobs(url)
        case _:
            # Not the URL itself: it may hold a password.
            raise ValueError(
                "RLHFLESS_BLOB_URL is neither redis://, nor file:///folder (an absolute path), nor an object store "
                "such as s3://bucket/folder, without a password in it"
            )


def _is_object_store(parts: SplitResult) -> bool:
    """A bucket and a folder. Azure's own URLs have ``@``, and so have passwords: its containers are named without."""
    is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment
    return parts.scheme in OBJECT_STORES and bool(parts.netloc) and is_plain


def open_cache(settings: PrefixKvSettings, redis_url: str, redis_password: str | None) -> RedisConnection:
    """The server for what may be dropped: one of its own, or the one of ``redis_url``.

    Raises ``ValueError`` for a URL that names none.
    """
    if settings.cache_url is None:
        return RedisConnection(redis_url, password=redis_password, retry_for_s=CACHE_PATIENCE_S)
    try:
        return RedisConnection(settings.cache_url, password=settings.cache_password, retry_for_s=CACHE_PATIENCE_S)
    except ValueError as error:
        raise ValueError(str(error).replace("REDIS_URL", "REDIS_CACHE_URL")) from None


def open_prefix_kv(settings: PrefixKvSettings, cache: RedisConnection) -> PrefixKvStore:
    """The prefix KV store whose handles are in ``cache``. Raises ``ValueError`` for a URL that names no store."""
    return RedisPrefixKv(cache, _open_bytes(settings.url, cache), budget_bytes=settings.budget_bytes)


def _open_bytes(url: str, cache: RedisConnection) -> DroppableBytes:
    parts = urlsplit(url)
    match parts.scheme:
        case "file" if parts.path and parts.netloc in ("", "localhost"):
            return DirectoryBytes(Path(unquote(parts.path)))
        case "redis" if not parts.netloc:
            return RedisBytes(cache)
        case _ if _is_object_store(parts):
            # Not every image has the library.
            from shared.store.object_store_bytes import ObjectStoreBytes

            return ObjectStoreBytes(url)
        case _:
            # Not the URL itself: it may hold a password.
            raise ValueError(
                "RLHFLESS_PREFIX_KV_URL is neither redis:// (the server of REDIS_CACHE_URL), nor file:///folder (an "
                "absolute path), nor an object store such as s3://bucket/folder, without a password in it"
            )
