"""The model of a checkpoint, from a real server into a folder."""

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.cli.export_command import ArchiveInvalid, fetch
from tests.unit.controller.cli.conftest import Controller

FILES = {"config.json": b"{}", "model.safetensors": os.urandom(3_000_000), "tokenizer.json": b"{}"}
CHUNK_BYTES = 70_000


@pytest.fixture
def trained(controller: Controller, tmp_path: Path) -> Controller:
    """A controller with a run of two checkpoints, the older one without a tokenizer."""
    controller.service.add("run-0")
    for step in (2, 4):
        folder = tmp_path / "checkpoints" / f"global_step_{step}"
        (folder / "huggingface").mkdir(parents=True)
        for name, content in FILES.items():
            if (step, name) != (2, "tokenizer.json"):
                (folder / "huggingface" / name).write_bytes(content)
        (folder / "learner_state.safetensors").write_bytes(b"state")
        controller.service.folders["run-0"][step] = folder
    return controller


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_newest_checkpoints_model_is_written_and_nothing_else(trained: Controller, tmp_path: Path) -> None:
    target = tmp_path / "new" / "model"
    result = trained.command("export", "run-0", str(target))
    assert result.exit_code == 0, result.output
    assert f"after 4 steps is in {target}" in result.stdout
    assert content_of(target) == FILES
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_a_step_can_be_chosen(trained: Controller, tmp_path: Path) -> None:
    assert trained.command("export", "run-0", str(tmp_path / "model"), "--step", "2").exit_code == 0
    assert content_of(tmp_path / "model").keys() == {"config.json", "model.safetensors"}


def test_a_folder_with_something_in_it_is_left_alone(trained: Controller, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("mine")
    result = trained.command("export", "run-0", str(tmp_path / "model"))
    assert result.exit_code == 2
    assert "is not empty: name another folder, or overwrite with --force" in result.stderr
    assert content_of(tmp_path / "model") == {"mine": b"mine"}


def test_by_force_the_model_takes_the_place_of_another_and_the_rest_stays(trained: Controller, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in ("mine", "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        (tmp_path / "model" / name).write_text("mine")
    assert trained.command("export", "run-0", str(tmp_path / "model"), "--force").exit_code == 0
    assert content_of(tmp_path / "model") == {**FILES, "mine": b"mine"}


def test_an_empty_folder_is_as_good_as_none(trained: Controller, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert trained.command("export", "run-0", str(tmp_path / "model")).exit_code == 0
    assert content_of(tmp_path / "model") == FILES


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run-0", "model", "--step", "3"), 1, "no checkpoint of step 3"),
        (("run-9", "model"), 1, "there is no run"),
        (("run-1", "model"), 1, "run run-1 has no checkpoint yet"),
        (("run-0", "file"), 2, "is a file: name a folder"),
        (("run-0", "file/model"), 1, "cannot be written"),
    ],
)
def test_what_cannot_be_exported_leaves_nothing(
    trained: Controller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    trained.service.add("run-1")
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    result = trained.command("export", *arguments)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "file"]


def archive_of(files: dict[str, bytes], **changes: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in changes.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


async def chunks_of(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


@pytest.mark.parametrize(
    "data",
    [
        archive_of({"huggingface/../../out": b"x" * 500_000}),
        archive_of({"/etc/out": b"x"}),
        archive_of({"elsewhere/config.json": b"x"}),
        archive_of({"huggingface/config.json": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        archive_of({"huggingface/config.json": b"{}"}),
        b"<html>" * 100_000,
        b"",
    ],
)
def test_an_archive_that_is_no_model_is_refused_and_writes_nothing_elsewhere(tmp_path: Path, data: bytes) -> None:
    target = tmp_path / "a" / "b"
    target.mkdir(parents=True)
    with pytest.raises(ArchiveInvalid):
        asyncio.run(fetch(chunks_of(data), target))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


async def test_a_download_that_breaks_off_is_told_as_what_it_is(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield archive_of({"huggingface/model.safetensors": b"x" * 500_000})[:100_000]
        raise ConnectionResetError("the other side is gone")

    with pytest.raises(ConnectionResetError):
        await fetch(broken(), tmp_path)
