"""What can be asked of uploaded datasets."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.problems import ConfigInvalid
from controller.runs.data.errors import DatasetInUse, DatasetUnknown, UploadInvalid, UploadTooLarge
from controller.runs.data.library import DatasetLibrary
from controller.runs.datasets import Datasets
from shared.contracts.errors import StoreRefused
from shared.store.memory import memory_store
from tests.fakes.stack import make_stack
from tests.fakes.virtual import in_virtual_time

ROWS = b'{"prompt": "w0 w1", "answer": "w0"}\n{"prompt": "w1 w2", "answer": "w1"}\n'


async def chunks(*parts: bytes | Exception) -> AsyncIterator[bytes]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
        yield part


def datasets_in(folder: Path, max_bytes: int = 1000) -> Datasets:
    return Datasets(DatasetLibrary(folder), memory_store(lambda: 0.0).runs, max_bytes=max_bytes)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_an_upload_is_a_dataset(tmp_path: Path) -> None:
    datasets = datasets_in(tmp_path)
    stored, is_new = await datasets.add("train.jsonl", chunks(ROWS[:10], b"", ROWS[10:]), num_bytes=len(ROWS))
    assert is_new
    assert (stored.name, stored.num_rows, stored.num_bytes) == ("train.jsonl", 2, len(ROWS))
    assert stored.columns == ("prompt", "answer")
    assert await datasets.get(stored.id) == stored
    assert list(await datasets.list()) == [stored]
    assert sorted(path.name for path in files_in(tmp_path)) == ["dataset.json", "train.jsonl"]


async def test_the_same_upload_again_is_the_same_dataset(tmp_path: Path) -> None:
    datasets = datasets_in(tmp_path)
    first, _ = await datasets.add("train.jsonl", chunks(ROWS))
    again, is_new = await datasets.add("copy.jsonl", chunks(*(bytes([byte]) for byte in ROWS)))
    assert (again, is_new) == (first, False)
    assert len(files_in(tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.jsonl", b'{"a": 1}\n{"a": ', "t.jsonl line 2 is not JSON"),
        ("t.jsonl", b'{"a": 1}\n[2]', "t.jsonl line 2 is not a JSON object"),
        ("t.jsonl", b"", "no row in t.jsonl"),
        ("t.csv", b"a,b\n1,2\n3\n", "t.csv line 3 has 1 values"),
        ("t.parquet", b"PAR1 nothing", "not readable parquet"),
        ("t.json", b"[{}, 3]", "t.json row 2 is not a JSON object"),
    ],
)
async def test_bad_content_is_refused_by_its_row_and_not_kept(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    with pytest.raises(UploadInvalid) as caught:
        await datasets_in(tmp_path).add(name, chunks(content))
    (problem,) = caught.value.problems
    assert problem.field == "body"
    assert words in problem.reason
    assert files_in(tmp_path) == []


async def test_a_bad_name_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UploadInvalid, match="name's end"):
        await datasets_in(tmp_path).add("train.txt", chunks(AssertionError("it was read")))
    assert files_in(tmp_path) == []


async def test_an_upload_that_is_too_large_is_refused_and_not_kept(tmp_path: Path) -> None:
    exact = datasets_in(tmp_path / "exact", max_bytes=len(ROWS))
    await exact.add("train.jsonl", chunks(ROWS))
    datasets = datasets_in(tmp_path / "small", max_bytes=len(ROWS) - 1)
    with pytest.raises(UploadTooLarge, match="RLHFLESS_MAX_DATASET_BYTES"):
        await datasets.add("train.jsonl", chunks(ROWS))
    with pytest.raises(UploadTooLarge):
        await datasets.add("train.jsonl", chunks(AssertionError("it was read")), num_bytes=len(ROWS))
    assert files_in(tmp_path / "small") == []


async def test_an_upload_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EOFError):
        await datasets_in(tmp_path).add("train.jsonl", chunks(ROWS, EOFError()))
    assert files_in(tmp_path) == []
    assert list((tmp_path / ".incoming").iterdir()) == []


async def test_no_file_is_touched_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    for name in ("begin", "keep", "discard"):
        work = getattr(DatasetLibrary, name)

        def remember(*given: Any, work: Any = work) -> Any:
            threads.add(threading.get_ident())
            return work(*given)

        monkeypatch.setattr(DatasetLibrary, name, remember)
    await datasets_in(tmp_path).add("train.jsonl", chunks(ROWS))
    assert threads
    assert threading.get_ident() not in threads


async def test_a_folder_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="cannot be stored"):
        await datasets_in(tmp_path / "file").add("train.jsonl", chunks(ROWS))


async def test_an_unknown_dataset_is_unknown(tmp_path: Path) -> None:
    datasets = datasets_in(tmp_path)
    for ask in (datasets.get, datasets.delete):
        with pytest.raises(DatasetUnknown):
            await ask("f" * 40)


@in_virtual_time
async def test_a_run_reads_an_uploaded_dataset_and_keeps_it_until_it_has_ended(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    datasets = controller.service.datasets
    train, _ = await datasets.add("up.jsonl", chunks((tmp_path / "train.jsonl").read_bytes()))
    val, _ = await datasets.add("val.jsonl", chunks((tmp_path / "val.jsonl").read_bytes()))
    files = {"data__train_files": f"dataset://{train.id}", "data__val_files": [f"dataset://{val.id}"]}
    checked = await controller.service.check(stack.document(**files), ())
    assert checked.notes[0].startswith("train: 8 rows of up.jsonl")
    run = await stack.submit(controller, **files)
    for dataset in (train, val):
        with pytest.raises(DatasetInUse, match=run):
            await datasets.delete(dataset.id)
    record = await stack.until(run, "succeeded", "failed")
    assert record.state == "succeeded", record.info
    assert record.config["data"]["train_files"] == [f"dataset://{train.id}"]
    for dataset in (train, val):
        await datasets.delete(dataset.id)
    assert list(await datasets.list()) == []
    with pytest.raises(ConfigInvalid, match="no uploaded dataset"):
        await stack.submit(controller, **files)
    await stack.stop()
