import io
import os
import tarfile
from pathlib import Path

import pytest

from controller.api.checkpoint_archive import CHUNK_BYTES, plan_archive, stream_archive
from controller.runs.errors import CheckpointUnknown, RunConflict


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "global_step_4"
    (folder / "huggingface").mkdir(parents=True)
    (folder / "MANIFEST.json").write_text("{}")
    (folder / "empty").touch()
    (folder / "block").write_bytes(bytes(512))
    (folder / "huggingface" / "model.safetensors").write_bytes(os.urandom(CHUNK_BYTES + 7))
    (folder / "huggingface" / ("n" * 120 + "ä.json")).write_text("long name")
    return folder


async def archive_of(folder: Path) -> bytes:
    return b"".join([chunk async for chunk in stream_archive(plan_archive(folder))])


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {f"{folder.name}/{path.relative_to(folder)}": path.read_bytes() for path in files}


async def test_the_archive_holds_the_folder(folder: Path) -> None:
    data = await archive_of(folder)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}
    assert len(found) == 5
    assert found == contents(folder)


async def test_its_size_is_known_before(folder: Path) -> None:
    assert len(await archive_of(folder)) == plan_archive(folder).num_bytes


async def test_no_chunk_is_as_large_as_a_large_file(folder: Path) -> None:
    (folder / "large").write_bytes(bytes(5 * CHUNK_BYTES))
    async for chunk in stream_archive(plan_archive(folder)):
        assert len(chunk) <= CHUNK_BYTES


@pytest.mark.parametrize("target", ["/etc/passwd", "/etc", "MANIFEST.json", "../secret"])
def test_a_link_is_refused(folder: Path, target: str) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / "huggingface" / "link").symlink_to(target)
    with pytest.raises(RunConflict, match="huggingface/link"):
        plan_archive(folder)


def test_a_pipe_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(RunConflict, match="pipe"):
        plan_archive(folder)


async def test_a_file_that_became_a_link_is_not_followed(folder: Path) -> None:
    archive = plan_archive(folder)
    (folder / "block").unlink()
    (folder / "block").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="block"):
        _ = [chunk async for chunk in stream_archive(archive)]


async def test_a_file_that_is_cut_short_breaks_the_download_off(folder: Path) -> None:
    archive = plan_archive(folder)
    (folder / "block").write_bytes(bytes(511))
    with pytest.raises(OSError, match="block"):
        _ = [chunk async for chunk in stream_archive(archive)]


async def test_a_file_that_grows_is_sent_as_it_was(folder: Path) -> None:
    archive = plan_archive(folder)
    (folder / "block").write_bytes(bytes(600))
    assert sum([len(chunk) async for chunk in stream_archive(archive)]) == archive.num_bytes


def test_a_folder_that_is_gone_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnknown, match="global_step_9"):
        plan_archive(tmp_path / "global_step_9")
