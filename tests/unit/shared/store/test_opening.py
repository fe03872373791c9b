"""Blob stores by URL."""

import traceback
from pathlib import Path

import fsspec
import pytest

from shared.store.object_blobs import ObjectBlobs
from shared.store.opening import open_blobs
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_connection import RedisConnection


async def test_a_file_url_is_a_folder(tmp_path: Path, redis: RedisConnection) -> None:
    folder = tmp_path / "with space"
    for url in (folder.as_uri(), f"file://localhost{folder}"):
        ref = await open_blobs(url, redis, budget_bytes=1).put("run", 0, "weights", b"weights")
        assert (folder / ref.id).read_bytes() == b"weights"


async def test_a_redis_url_is_the_stores_own_server(redis: RedisConnection) -> None:
    assert isinstance(open_blobs("redis://", redis, budget_bytes=1), RedisBlobs)


async def test_an_object_stores_url_is_a_bucket(redis: RedisConnection) -> None:
    blobs = open_blobs("memory://bucket/folder", redis, budget_bytes=1)
    assert isinstance(blobs, ObjectBlobs)
    ref = await blobs.put("run", 0, "weights", b"weights")
    assert fsspec.filesystem("memory").cat_file(f"/bucket/folder/{ref.id}") == b"weights"


async def test_an_object_store_without_its_library_is_named(redis: RedisConnection) -> None:
    with pytest.raises(ValueError, match="RLHFLESS_BLOB_URL needs a package that is not installed"):
        open_blobs("oss://bucket/folder", redis, budget_bytes=1)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/folder",
        "folder",
        "file:",
        "file://folder",
        "file://host/folder",
        "s3://key:secret@bucket",
        "s3://bucket/folder?key=secret",
        "s3:///folder",
        "ftp://bucket",
    ],
)
async def test_another_url_is_refused_without_showing_it(url: str, redis: RedisConnection) -> None:
    with pytest.raises(ValueError, match="RLHFLESS_BLOB_URL") as refused:
        open_blobs(url, redis, budget_bytes=1)
    assert "secret" not in str(refused.value)
    assert "secret" not in traceback.format_exception(refused.value)[-1]
