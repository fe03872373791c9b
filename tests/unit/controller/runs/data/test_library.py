"""Uploaded datasets on disk: complete or not there, and never outside their folder."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.runs.data.errors import DatasetUnknown, PathNotFound
from controller.runs.data.library import DatasetLibrary, StoredDataset

ID = "0123456789abcdef" * 2 + "01234567"


def dataset(id: str = ID, name: str = "train.jsonl", created_at: float = 1.0) -> StoredDataset:
    return StoredDataset(id=id, name=name, num_rows=1, num_bytes=2, columns=("prompt",), created_at=created_at)


@contextmanager
def incoming(library: DatasetLibrary) -> Iterator[Path]:
    folder = library.begin()
    try:
        yield folder
    finally:
        library.discard(folder)


def kept(library: DatasetLibrary, one: StoredDataset, content: str = "{}") -> tuple[StoredDataset, bool]:
    with incoming(library) as folder:
        (folder / "rows" / one.name).write_text(content)
        return library.keep(folder, one)


@pytest.fixture
def library(tmp_path: Path) -> DatasetLibrary:
    return DatasetLibrary(tmp_path / "datasets")


def test_a_dataset_that_was_kept_is_there(library: DatasetLibrary) -> None:
    assert library.list() == []
    assert kept(library, dataset()) == (dataset(), True)
    assert library.get(ID) == dataset()
    assert library.list() == [dataset()]
    file = library.file(f"dataset://{ID}", field="f")
    assert file.name == "train.jsonl"
    assert file.read_text() == "{}"


def test_the_first_of_two_equal_ones_stays(library: DatasetLibrary) -> None:
    kept(library, dataset())
    assert kept(library, dataset(name="again.jsonl", created_at=2.0)) == (dataset(), False)
    assert library.list() == [dataset()]
    assert list((library.root / ".incoming").iterdir()) == []


@pytest.mark.parametrize(
    "damaged", [b"", b"\0" * 64, b"\xff", b"[]", b"{}", b'{"columns": 3}', b'{"columns": [], "more": 1}']
)
def test_a_damaged_one_is_none_and_hides_no_other_and_is_mended_by_an_upload(
    library: DatasetLibrary, damaged: bytes
) -> None:
    kept(library, dataset())
    kept(library, dataset(id="a" * 40))
    (library.root / ID / "dataset.json").write_bytes(damaged)
    assert library.list() == [dataset(id="a" * 40)]
    with pytest.raises(DatasetUnknown):
        library.get(ID)
    assert kept(library, dataset(created_at=3.0)) == (dataset(created_at=3.0), True)
    assert library.get(ID) == dataset(created_at=3.0)


def test_a_dataset_is_on_the_disk_before_its_name_is(library: DatasetLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def remember(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def named(path: Path, target: Path) -> Path:
        synced.append("named")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", remember)
    monkeypatch.setattr(Path, "rename", named)
    kept(library, dataset())
    before, after = synced[: synced.index("named")], synced[synced.index("named") + 1 :]
    assert {"train.jsonl", "dataset.json", "rows"} < set(before)
    assert after == [library.root.name]


def test_what_was_not_kept_is_gone(library: DatasetLibrary) -> None:
    def cut_off() -> None:
        with incoming(library) as folder:
            (folder / "rows" / "half").write_text("{")
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        cut_off()
    assert list((library.root / ".incoming").iterdir()) == []
    assert library.list() == []


def test_what_a_killed_controller_left_is_swept_and_a_going_upload_is_not(library: DatasetLibrary) -> None:
    with incoming(library) as going:
        left = library.root / ".incoming" / "left"
        left.mkdir()
        long_ago = time.time() - 2 * 24 * 3600
        os.utime(left, (long_ago, long_ago))
        with incoming(library):
            assert going.is_dir()
            assert not left.exists()


def test_an_upload_that_ends_while_another_one_begins_does_not_hold_it_up(
    library: DatasetLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def ended_before(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name == "ending":
            path.rmdir()
        return stat(path, follow_symlinks=follow_symlinks)

    (library.root / ".incoming" / "ending").mkdir(parents=True)
    monkeypatch.setattr(Path, "stat", ended_before)
    assert kept(library, dataset()) == (dataset(), True)


def test_a_deleted_dataset_is_unknown(library: DatasetLibrary) -> None:
    kept(library, dataset())
    library.delete(ID)
    for ask in (library.get, library.delete):
        with pytest.raises(DatasetUnknown, match=ID):
            ask(ID)
    assert list(library.root.rglob("*.jsonl")) == []
    with pytest.raises(PathNotFound, match="no uploaded dataset"):
        library.file(f"dataset://{ID}", field="f")


@pytest.mark.parametrize(
    "id", ["", ".", "..", ".incoming", "../" + ID, ID + "/", ID + "\n", ID.upper(), "x" * 5000, "a\0b"]
)
def test_what_is_no_id_leads_nowhere(library: DatasetLibrary, id: str) -> None:
    kept(library, dataset())
    for ask in (library.get, library.delete):
        with pytest.raises(DatasetUnknown):
            ask(id)
    assert library.list() == [dataset()]


def test_the_oldest_comes_first(library: DatasetLibrary) -> None:
    for id, created_at in (("a" * 40, 3.0), ("b" * 40, 1.0), ("c" * 40, 2.0)):
        kept(library, dataset(id=id, created_at=created_at))
    assert [one.id[0] for one in library.list()] == ["b", "c", "a"]
