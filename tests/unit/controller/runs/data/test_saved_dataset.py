"""Folders of ``save_to_disk``, written here as the datasets library writes them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.runs.data.errors import FileUnreadable, PathNotFound
from controller.runs.data.reader import read_rows
from controller.runs.data.saved_dataset import check_saved_dataset, read_saved_dataset

ROWS = [{"question": f"{number}+1", "answer": str(number + 1), "info": {"level": number}} for number in range(5)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two shards of three and two rows."""
    arrow = pytest.importorskip("pyarrow")
    folder = tmp_path / "sums"
    folder.mkdir()
    for number, rows in enumerate((ROWS[:3], ROWS[3:])):
        table = arrow.Table.from_pylist(rows)
        with arrow.ipc.new_stream(str(folder / f"data-0000{number}-of-00002.arrow"), table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    files = [{"filename": f"data-0000{number}-of-00002.arrow"} for number in range(2)]
    write_state(folder, {"_data_files": files, "_fingerprint": "f", "_format_type": None, "_split": "train"})
    (folder / "dataset_info.json").write_text("{}")
    return folder


def write_state(folder: Path, state: object) -> None:
    (folder / "state.json").write_text(json.dumps(state))


def refused(folder: Path) -> str:
    with pytest.raises(FileUnreadable) as caught:
        list(read_saved_dataset(folder, field="data.train_files"))
    (problem,) = caught.value.problems
    assert problem.field == "data.train_files"
    assert problem.suggestion
    return problem.reason


def test_rows_come_in_the_order_of_the_shards(saved: Path) -> None:
    rows = read_rows([saved], field="f")
    assert [row.columns for row in rows] == ROWS
    assert rows[4].place == "sums row 5"
    check_saved_dataset(saved, given="sums", field="f")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("{", "state.json"),
        ([], "state.json"),
        ({}, "_data_files"),
        ({"_data_files": [{"filename": "../sums/data-00000-of-00002.arrow"}]}, "files of other folders"),
        ({"_data_files": [{"filename": 3}]}, "files of other folders"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "gone.arrow"),
        ({"_data_files": [{"filename": "state.json"}]}, "state.json"),
        ({"_data_files": [], "_indices_files": [{"filename": "i.arrow"}]}, "saved with its indices"),
    ],
)
def test_a_broken_folder_is_refused(saved: Path, state: Any, words: str) -> None:
    if isinstance(state, str):
        (saved / "state.json").write_text(state)
    else:
        write_state(saved, state)
    assert words in refused(saved)


def test_without_pyarrow_the_message_says_what_to_do(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "needs pyarrow" in refused(saved)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PathNotFound, match="save_to_disk"):
        check_saved_dataset(tmp_path, given="folder", field="data.train_files")
