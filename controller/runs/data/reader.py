"""Data files to rows."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.runs.data.errors import DatasetEmpty, FileUnreadable, RowInvalid
from controller.runs.data.parquet import read_parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: its columns as JSON values, and where it stands."""

    columns: dict[str, Any]
    place: str
    """For messages: ``train.jsonl line 13``."""


def read_rows(files: Sequence[Path], *, field: str) -> list[Row]:
    """All rows of JSONL or parquet files, in the order of the files.

    Blank lines of JSONL are skipped. ``field`` names the config key in errors: ``FileUnreadable`` for an unknown or
    broken format, ``RowInvalid`` for a line that is not a JSON object, ``DatasetEmpty`` when there is no row at all.
    """
    rows = [row for file in files for row in _rows_of(file, field)]
    if not rows:
        names = ", ".join(file.name for file in files)
        raise DatasetEmpty(field=field, reason=f"there is no row in {names}", suggestion="name a file with rows")
    return rows


def _rows_of(file: Path, field: str) -> Iterator[Row]:
    match file.suffix.lower():
        case ".jsonl" | ".ndjson":
            yield from _jsonl(file, field)
        case ".parquet":
            for number, columns in enumerate(read_parquet(file, field=field), start=1):
                yield Row(columns=columns, place=f"{file.name} row {number}")
        case _:
            raise FileUnreadable(
                field=field,
                reason=f"{file.name} is neither JSONL nor parquet by its name",
                suggestion="save it as .jsonl (one JSON object per line) or .parquet",
            )


def _jsonl(file: Path, field: str) -> Iterator[Row]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    place = f"{file.name} line {number}"
                    yield Row(columns=_object(line, place, field), place=place)
    except OSError as error:
        raise FileUnreadable(
            field=field, reason=f"{file.name} cannot be read: {error.strerror}", suggestion="make it readable"
        ) from error


def _object(line: bytes, place: str, field: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8-sig"))
        if b"\\ud" in line.lower():
            # Half of a surrogate pair is valid JSON and no text: no tokenizer and no store can take it.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # not UTF-8 is a ValueError too
        raise RowInvalid(
            field=field, reason=f"{place} is not JSON: {error}", suggestion="write one JSON object per line"
        ) from error
    if not isinstance(value, dict):
        raise RowInvalid(
            field=field,
            reason=f"{place} is not a JSON object",
            suggestion='write each row as {"prompt": ..., "answer": ...}',
        )
    return value
