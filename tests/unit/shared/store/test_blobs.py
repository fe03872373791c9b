"""Blob stores, one suite for all adapters."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import fsspec
import pytest
import pytest_asyncio
from pydantic import ValidationError

from shared.contracts.errors import MissingBlob
from shared.contracts.policy import BlobRef
from shared.store import keys
from shared.store.blobs import BlobStore, make_ref, step_of
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.memory_blobs import MemoryBlobs
from shared.store.object_blobs import ObjectBlobs
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_connection import RedisConnection

CHUNK_BYTES = 1000
SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES)


@dataclass(frozen=True)
class Kept:
    """A blob store and a way to spoil what it keeps."""

    blobs: BlobStore
    overwrite: Callable[[BlobRef, bytes], Awaitable[None]]


@pytest_asyncio.fixture(params=["directory", "redis", "memory", "object", "object_folder"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisConnection) -> Kept:
    memory = MemoryBlobs()

    async def overwrite_file(ref: BlobRef, data: bytes) -> None:
        (tmp_path / "blobs" / ref.id).write_bytes(data)

    async def overwrite_chunk(ref: BlobRef, data: bytes) -> None:
        await redis.command("SET", keys.blob_chunk(ref.id.partition("/")[0], ref.id, 0), data)

    async def overwrite_entry(ref: BlobRef, data: bytes) -> None:
        memory._blobs[ref.id] = data

    match request.param:
        case "object":
            bucket = f"memory://bucket-{tmp_path.name}/folder"
            files, root = fsspec.core.url_to_fs(bucket)

            async def overwrite_object(ref: BlobRef, data: bytes) -> None:
                files.pipe_file(f"{root}/{ref.id}", data)

            return Kept(ObjectBlobs(bucket), overwrite_object)
        case "object_folder":
            return Kept(ObjectBlobs((tmp_path / "blobs").as_uri(), auto_mkdir=True), overwrite_file)
        case "directory":
            return Kept(DirectoryBlobs(tmp_path / "blobs"), overwrite_file)
        case "redis":
            return Kept(RedisBlobs(redis, budget_bytes=10**6, chunk_bytes=CHUNK_BYTES), overwrite_chunk)
        case _:
            return Kept(memory, overwrite_entry)


def content(num_bytes: int, seed: int = 0) -> bytes:
    return bytes((seed + index * 31) % 251 for index in range(num_bytes))


@pytest.mark.parametrize("num_bytes", SIZES)
async def test_bytes_come_back_by_their_reference(kept: Kept, num_bytes: int) -> None:
    data = content(num_bytes)
    ref = await kept.blobs.put("run-1", 3, "weights", data)
    assert ref.num_bytes == num_bytes
    assert ref.sha256 == hashlib.sha256(data).hexdigest()
    assert ref.id.startswith("run-1/")
    assert step_of(ref.id) == 3
    assert await kept.blobs.get(ref) == data


@pytest.mark.parametrize("num_bytes", SIZES)
async def test_a_view_is_the_callers_own(kept: Kept, num_bytes: int) -> None:
    data = content(num_bytes)
    ref = await kept.blobs.put("run-1", 3, "weights", data)
    view = await kept.blobs.view(ref)
    assert not view.readonly
    assert view == data
    view[:] = bytes(num_bytes)
    assert await kept.blobs.get(ref) == data
    assert await kept.blobs.view(ref) == data


async def test_a_view_outlives_its_blob(kept: Kept) -> None:
    ref = await kept.blobs.put("run-1", 0, "weights", content(100))
    view = await kept.blobs.view(ref)
    await kept.blobs.delete_run("run-1")
    assert view == content(100)


async def test_the_same_bytes_are_one_blob_and_others_are_another(kept: Kept) -> None:
    first = await kept.blobs.put("run-1", 0, "weights", b"a")
    assert await kept.blobs.put("run-1", 0, "weights", b"a") == first
    others = [
        await kept.blobs.put("run-1", 0, "weights", b"b"),
        await kept.blobs.put("run-1", 0, "state", b"a"),
        await kept.blobs.put("run-1", 1, "weights", b"a"),
        await kept.blobs.put("run-2", 0, "weights", b"a"),
    ]
    assert len({first.id, *(ref.id for ref in others)}) == 5
    assert await kept.blobs.get(first) == b"a"


async def test_a_blob_that_is_not_there_is_missing(kept: Kept) -> None:
    for read in (kept.blobs.get, kept.blobs.view):
        with pytest.raises(MissingBlob, match="not in the store"):
            await read(make_ref("run-1", 0, "weights", b"a"))


@pytest.mark.parametrize("damaged", [b"", b"shorter", b"a" * 100, b"long" * 100])
async def test_damaged_bytes_are_never_returned(kept: Kept, damaged: bytes) -> None:
    ref = await kept.blobs.put("run-1", 0, "weights", b"b" * 100)
    await kept.overwrite(ref, damaged)
    for read in (kept.blobs.get, kept.blobs.view):
        with pytest.raises(MissingBlob, match="damaged"):
            await read(ref)


async def test_a_reference_with_another_digest_or_size_is_refused(kept: Kept) -> None:
    ref = await kept.blobs.put("run-1", 0, "weights", b"a" * 10)
    for change in ({"sha256": "0" * 64}, {"num_bytes": 9}, {"num_bytes": 2**62}):
        for read in (kept.blobs.get, kept.blobs.view):
            with pytest.raises(MissingBlob):
                await read(ref.model_copy(update=change))


async def test_purging_deletes_older_steps_but_not_what_is_kept(kept: Kept) -> None:
    refs = [await kept.blobs.put("run-1", step, "weights", content(5, step)) for step in (0, 1, 2, 10)]
    second = await kept.blobs.put("run-1", 0, "state", b"s")
    other = await kept.blobs.put("run-2", 0, "weights", b"o")
    assert await kept.blobs.purge("run-1", before_step=10, keep=[refs[0].id, refs[3].id]) == 3
    assert await kept.blobs.purge("run-1", before_step=10, keep=[refs[0].id]) == 0
    for ref in (refs[0], refs[3], other):
        await kept.blobs.get(ref)
    for ref in (refs[1], refs[2], second):
        with pytest.raises(MissingBlob):
            await kept.blobs.get(ref)
    assert await kept.blobs.put("run-1", 1, "weights", content(5, 1)) == refs[1]
    assert await kept.blobs.get(refs[1]) == content(5, 1)


async def test_purging_a_run_without_blobs_deletes_none(kept: Kept) -> None:
    assert await kept.blobs.purge("run-1", before_step=10, keep=[]) == 0
    await kept.blobs.delete_run("run-1")


async def test_deleting_a_run_deletes_its_blobs_only(kept: Kept) -> None:
    doomed = await kept.blobs.put("run-1", 3, "weights", b"a")
    others = [await kept.blobs.put(run, 3, "weights", b"a") for run in ("run-10", "run")]
    await kept.blobs.delete_run("run-1")
    with pytest.raises(MissingBlob):
        await kept.blobs.get(doomed)
    for ref in others:
        assert await kept.blobs.get(ref) == b"a"


async def test_writers_at_the_same_time_do_not_disturb_each_other(kept: Kept) -> None:
    same, own = content(5 * CHUNK_BYTES), [content(5 * CHUNK_BYTES, seed) for seed in range(1, 9)]
    refs = await asyncio.gather(*(kept.blobs.put("run-1", 0, "weights", data) for data in [same] * 8 + own))
    assert len({ref.id for ref in refs}) == 9
    for ref, data in zip(refs, [same] * 8 + own, strict=True):
        assert await kept.blobs.get(ref) == data


@pytest.mark.parametrize(("run", "kind"), [("..", "w"), ("a/b", "w"), ("", "w"), ("run", "../w"), ("run", "a/b")])
async def test_a_run_or_kind_that_would_leave_its_place_is_refused(kept: Kept, run: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"single parts|BlobRef"):
        await kept.blobs.put(run, 0, kind, b"a")


@pytest.mark.parametrize(
    "id",
    [
        "../secret",
        "run/../../secret",
        "run/000000/../secret",
        "run/..",
        "run/.",
        "run/.hidden",
        "/etc/passwd",
        "run//etc",
        "run",
        "run/",
        "",
        "run/a\x00b",
        "run/a\n",
        "run/a\nb",
        "run\\..\\secret",
        "run/%2e%2e/secret",
        "~/secret",
        "file:///etc/passwd",
        "run/a b",
        "RUN/a",
        "run/" + "a" * 129,
        "run" + "/a" * 8,
        "run/ünï",
    ],
)
def test_no_reference_leaves_the_runs_prefix(id: str) -> None:
    with pytest.raises(ValidationError):
        BlobRef(id=id, num_bytes=1, sha256="0" * 64)


@pytest.mark.parametrize(
    "change", [{"sha256": "0" * 63}, {"sha256": "g" * 64}, {"sha256": "A" * 64}, {"num_bytes": -1}]
)
def test_a_reference_needs_a_size_and_a_digest(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BlobRef.model_validate({"id": "run/000000/w", "num_bytes": 1, "sha256": "0" * 64, **change})


async def test_a_forged_reference_finds_nothing(kept: Kept, tmp_path: Path) -> None:
    """Behind the contract's pattern there is a digest: even an id that passes reads only what it promises."""
    (tmp_path / "blobs" / "run").mkdir(parents=True)
    (tmp_path / "blobs" / "run" / "folder").mkdir()
    for id in ("run/folder", "run/folder/x", "run/a..b", "run/000000/w-0/deeper"):
        for read in (kept.blobs.get, kept.blobs.view):
            with pytest.raises(MissingBlob):
                await read(BlobRef(id=id, num_bytes=1, sha256="0" * 64))


@pytest.mark.parametrize("run", ["..", ".", "", "/", "a/../..", "RUN", "run/000000"])
async def test_a_folder_outside_the_root_is_never_deleted(tmp_path: Path, run: str) -> None:
    blobs = DirectoryBlobs(tmp_path / "root" / "blobs")
    ref = await blobs.put("run", 0, "weights", b"a")
    (tmp_path / "root" / "000000").mkdir()
    (tmp_path / "root" / "000000" / "precious").write_text("")
    for deletion in (blobs.delete_run(run), cast(Awaitable[object], blobs.purge(run, before_step=9, keep=[]))):
        with pytest.raises(ValueError, match="is no run"):
            await deletion
    assert (tmp_path / "root" / "000000" / "precious").exists()
    assert await blobs.get(ref) == b"a"
