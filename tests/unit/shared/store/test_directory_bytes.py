"""Prefix KV in a folder: whole files only, no room is told, and nothing outlives its time."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from shared.contracts.errors import MissingBlob, StoreRefused
from shared.store.directory_bytes import DirectoryBytes
from shared.store.droppable_bytes import kv_ref
from shared.store.prefix_kv import PREFIX_KV_TTL_S

REF = kv_ref("run-1", "ab" * 32, b"bytes")


def test_only_whole_files_are_there(tmp_path: Path) -> None:
    asyncio.run(DirectoryBytes(tmp_path).put(REF, b"bytes"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / REF.id]


async def test_a_file_is_whole_when_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, write_bytes = [], Path.write_bytes

    def watched(path: Path, data: bytes) -> int:
        written.append(path)
        assert path != tmp_path / REF.id
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", watched)
    await DirectoryBytes(tmp_path).put(REF, b"bytes")
    assert (tmp_path / REF.id).read_bytes() == b"bytes"
    assert len(written) == 1


async def test_what_was_read_stays_though_it_is_deleted_and_changes_nothing(tmp_path: Path) -> None:
    content = DirectoryBytes(tmp_path)
    await content.put(REF, b"bytes")
    data = await content.get(REF)
    data[0] = 0
    assert bytes(await content.get(REF)) == b"bytes"
    await content.delete([REF.id])
    assert bytes(data[1:]) == b"ytes"
    with pytest.raises(MissingBlob):
        await content.get(REF)


async def test_a_folder_that_cannot_be_written_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreRefused, match="RLHFLESS_PREFIX_KV_URL"):
        await DirectoryBytes(tmp_path / "file").put(REF, b"bytes")


async def test_an_empty_file_is_missing(tmp_path: Path) -> None:
    content = DirectoryBytes(tmp_path)
    await content.put(REF, b"bytes")
    (tmp_path / REF.id).write_bytes(b"")
    with pytest.raises(MissingBlob):
        await content.get(REF)


async def test_what_nobody_purged_goes_after_its_time(tmp_path: Path) -> None:
    old, young = kv_ref("run-1", "cd" * 32, b"old"), kv_ref("run-2", "cd" * 32, b"young")
    await DirectoryBytes(tmp_path).put(old, b"old")
    await DirectoryBytes(tmp_path).put(young, b"young")
    past = time.time() - PREFIX_KV_TTL_S - 1
    os.utime(tmp_path / old.id, (past, past))
    await DirectoryBytes(tmp_path).put(REF, b"bytes")
    assert not (tmp_path / old.id).exists()
    assert (tmp_path / young.id).exists()
