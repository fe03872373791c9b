"""What a folder of blobs does when the folder fails it."""

import os
from pathlib import Path

import pytest

from shared.contracts.errors import MissingBlob, StoreRefused
from shared.store.blobs import make_ref
from shared.store.directory_blobs import DirectoryBlobs


@pytest.fixture
def full_disk(tmp_path: Path) -> Path:
    """A place where no byte can be written, also by root: below a regular file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "blobs"


async def test_a_folder_that_cannot_be_written_refuses(full_disk: Path) -> None:
    with pytest.raises(StoreRefused, match="cannot keep 7 bytes under the blob folder: Not a directory") as refused:
        await DirectoryBlobs(full_disk).put("run", 0, "weights", b"weights")
    assert "RLHFLESS_BLOB_URL" in str(refused.value)


async def test_a_folder_that_is_not_there_misses_every_blob(full_disk: Path) -> None:
    with pytest.raises(MissingBlob):
        await DirectoryBlobs(full_disk).get(make_ref("run", 0, "weights", b"weights"))
    assert await DirectoryBlobs(full_disk.parent.parent / "none").purge("run", before_step=9, keep=[]) == 0


async def test_what_cannot_be_deleted_is_told(full_disk: Path) -> None:
    with pytest.raises(StoreRefused, match="cannot delete"):
        await DirectoryBlobs(full_disk).delete_run("run")


async def test_a_write_that_fails_midway_leaves_nothing_behind(tmp_path: Path) -> None:
    """A name in the way of the finished file: the bytes are written, then cannot take their place."""
    ref = make_ref("run", 0, "weights", b"weights")
    (tmp_path / ref.id / "in the way").mkdir(parents=True)
    with pytest.raises(StoreRefused):
        await DirectoryBlobs(tmp_path).put("run", 0, "weights", b"weights")
    assert os.listdir((tmp_path / ref.id).parent) == [(tmp_path / ref.id).name]


async def test_no_unfinished_file_is_seen_under_a_blobs_name(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    ref = await blobs.put("run", 0, "weights", b"weights")
    unfinished = (tmp_path / ref.id).with_name(f".{Path(ref.id).name}.1.ab")
    unfinished.write_bytes(b"wei")
    assert await blobs.purge("run", before_step=1, keep=[]) == 1
    assert not unfinished.exists()
    assert not unfinished.parent.exists()


async def test_a_blob_is_written_once_and_mended_when_it_was_cut_short(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    ref = await blobs.put("run", 0, "weights", b"weights")
    written = (tmp_path / ref.id).stat()
    await blobs.put("run", 0, "weights", b"weights")
    assert (tmp_path / ref.id).stat().st_ino == written.st_ino
    (tmp_path / ref.id).write_bytes(b"wei")
    await blobs.put("run", 0, "weights", b"weights")
    assert await blobs.get(ref) == b"weights"
