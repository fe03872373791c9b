"""Folders that ``datasets.Dataset.save_to_disk`` wrote to rows, by pyarrow alone.

Such a folder has Arrow stream files and a ``state.json`` that lists them in order.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.runs.data.arrow_values import ARROW_ERRORS, import_arrow, json_columns
from controller.runs.data.errors import FileUnreadable, PathNotFound, RowInvalid
from controller.runs.data.row import Row

STATE_FILE = "state.json"
SPLITS_FILE = "dataset_dict.json"


def check_saved_dataset(folder: Path, *, given: str, field: str) -> None:
    """See that a folder is one saved dataset. Raises ``PathNotFound``; ``given`` is how the user named it."""
    if (folder / STATE_FILE).is_file():
        return
    if (folder / SPLITS_FILE).is_file():
        there = ", ".join(
            sorted(f"{given.rstrip('/')}/{state.parent.name}" for state in folder.glob(f"*/{STATE_FILE}"))
        )
        raise PathNotFound(field=field, reason=f"{given!r} has several splits", suggestion=f"name one of {there}")
    raise PathNotFound(
        field=field,
        reason=f"{given!r} is not a file, nor a folder that save_to_disk of the datasets library wrote",
        suggestion="name the files one by one",
    )


def read_saved_dataset(folder: Path, *, field: str) -> Iterator[Row]:
    """The rows of a saved dataset, one batch in memory at a time.

    Raises ``FileUnreadable`` without pyarrow or for a broken folder, ``RowInvalid`` for a value that JSON cannot hold.
    """
    names = _data_files(folder, field)
    arrow = import_arrow("pyarrow", name=folder.name, field=field)
    number = 0
    for name in names:
        try:
            with arrow.OSFile(str(folder / name)) as source, arrow.ipc.open_stream(source) as batches:
                for batch in batches:
                    for columns in batch.to_pylist():
                        number += 1
                        place = f"{folder.name} row {number}"
                        yield Row(columns=json_columns(columns, place=place, field=field), place=place)
        except RowInvalid:
            raise
        except ARROW_ERRORS as error:
            raise _unreadable(folder, field, f"{name}: {error}") from error


def _data_files(folder: Path, field: str) -> list[str]:
    try:
        state: Any = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        names = [entry["filename"] for entry in state["_data_files"]]
        picked = state.get("_indices_files") or state.get("_indices_data_files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(folder, field, f"{STATE_FILE}: {error}") from error
    if picked:
        raise _unreadable(folder, field, "it is a selection of rows that was saved with its indices")
    # The list is read off a file: what it names lies in the folder itself.
    if not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise _unreadable(folder, field, f"{STATE_FILE} names files of other folders")
    return names


def _unreadable(folder: Path, field: str, why: str) -> FileUnreadable:
    return FileUnreadable(
        field=field,
        reason=f"{folder.name} is not a readable saved dataset: {why}",
        suggestion="save it again with a current version of the datasets library, or as parquet",
    )
