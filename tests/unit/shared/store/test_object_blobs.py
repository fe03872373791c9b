"""What becomes of blobs when the object store has a bad moment, or says no."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

import fsspec
import pytest

from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.store.blobs import make_ref
from shared.store.object_blobs import NUM_ATTEMPTS, ObjectBlobs
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_connection import RedisConnection

SECRET = "AKIAHUNTER2"


@pytest.fixture
def url() -> str:
    return f"memory://{os.urandom(4).hex()}"


class Failing:
    """A file system whose methods fail so many times first."""

    def __init__(self, files: Any, error: Exception, *, times: int) -> None:
        self._files = files
        self._error = error
        self.num_left = times
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*arguments: Any) -> Any:
            self.called.append(name)
            if self.num_left:
                self.num_left -= 1
                raise self._error
            return getattr(self._files, name)(*arguments)

        return method


def failing(url: str, error: Exception, *, times: int) -> tuple[ObjectBlobs, Failing]:
    blobs = ObjectBlobs(url, first_pause_s=0.0)
    files = Failing(blobs._files, error, times=times)
    blobs._files = files
    return blobs, files


async def test_a_bad_moment_passes_unseen(url: str) -> None:
    blobs, _ = failing(url, ConnectionError("reset"), times=NUM_ATTEMPTS - 1)
    ref = await blobs.put("run", 0, "weights", b"weights")
    assert await ObjectBlobs(url).get(ref) == b"weights"


async def test_one_that_does_not_pass_is_named_and_can_be_tried_again(url: str) -> None:
    ref = await ObjectBlobs(url).put("run", 0, "weights", b"weights")
    blobs, _ = failing(url, RuntimeError(f"key {SECRET} is throttled"), times=100)
    for work in (
        blobs.put("run", 1, "weights", b"others"),
        blobs.get(ref),
        blobs.view(ref),
        blobs.purge("run", before_step=1, keep=()),
        blobs.delete_run("run"),
    ):
        with pytest.raises(StoreUnavailable, match=r"RuntimeError.*RLHFLESS_BLOB_URL") as failed:
            await cast(Awaitable[object], work)
        assert failed.value.retryable
        assert SECRET not in str(failed.value)
        assert failed.value.__cause__ is None
    assert await ObjectBlobs(url).get(ref) == b"weights"


async def test_what_is_not_permitted_is_not_tried_again(url: str) -> None:
    blobs, files = failing(url, PermissionError(f"{SECRET} may not"), times=100)
    with pytest.raises(StoreRefused, match="permission denied") as refused:
        await blobs.put("run", 0, "weights", b"weights")
    assert len(files.called) == 1
    assert SECRET not in str(refused.value)


async def test_a_bucket_that_is_not_there_refuses(tmp_path: Any) -> None:
    blobs = ObjectBlobs((tmp_path / "none").as_uri())
    with pytest.raises(StoreRefused, match="no such bucket"):
        await blobs.put("run", 0, "weights", b"weights")


async def test_a_blob_is_written_once_and_mended_when_it_was_cut_short(url: str) -> None:
    ref = await ObjectBlobs(url).put("run", 0, "weights", b"weights")
    blobs, files = failing(url, ConnectionError(), times=0)
    await blobs.put("run", 0, "weights", b"weights")
    assert files.called == ["info"], "one look, and no write"
    path = f"/{url.removeprefix('memory://')}/{ref.id}"
    fsspec.filesystem("memory").pipe_file(path, b"wei")
    await blobs.put("run", 0, "weights", b"weights")
    assert await blobs.get(ref) == b"weights"


async def test_what_another_process_writes_and_deletes_is_seen(url: str) -> None:
    mine, theirs = ObjectBlobs(url), ObjectBlobs(url)
    refs = [await theirs.put("run", step, "weights", bytes([step])) for step in range(3)]
    assert [await mine.get(ref) for ref in refs] == [b"\0", b"\1", b"\2"]
    assert await theirs.purge("run", before_step=2, keep=[refs[0].id]) == 1
    assert await mine.purge("run", before_step=3, keep=[]) == 2


def test_no_reference_says_where_it_is_kept() -> None:
    assert make_ref("run", 0, "weights", b"weights").id.startswith("run/000000/weights-")


async def test_redis_over_its_budget_says_which_components_have_room(redis: RedisConnection) -> None:
    with pytest.raises(StoreRefused, match="deploy/components/large-redis, shared-volume or object-store"):
        await RedisBlobs(redis, budget_bytes=1).put("run", 0, "weights", b"weights")
