"""JSON files to rows: one object per line, or one array of objects."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.runs.data.errors import FileUnreadable, RowInvalid
from controller.runs.data.row import Row


def read_json_lines(file: Path, *, field: str) -> Iterator[Row]:
    """The rows of a file with one object per line, one line in memory at a time. Blank lines are skipped.

    Raises ``RowInvalid`` for a line that is no JSON object, ``FileUnreadable``.
    """
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    place = f"{file.name} line {number}"
                    yield Row(columns=_object(_parsed(line, place, field), place, field), place=place)
    except OSError as error:
        raise _unreadable(file, field, error) from error


def read_json(file: Path, *, field: str) -> Iterator[Row]:
    """The rows of a file that is an array of objects; one that is not is read line by line, as many are named .json.

    An array is in memory as a whole.
    """
    try:
        with file.open("rb") as content:
            start = content.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
        text = file.read_bytes() if start.startswith(b"[") else None
    except OSError as error:
        raise _unreadable(file, field, error) from error
    if text is None:
        yield from read_json_lines(file, field=field)
        return
    rows: list[Any] = _parsed(text, file.name, field)
    for number, value in enumerate(rows, start=1):
        place = f"{file.name} row {number}"
        yield Row(columns=_object(value, place, field), place=place)


def _parsed(text: bytes, place: str, field: str) -> Any:
    try:
        value = json.loads(text.decode("utf-8-sig"))
        if b"\\ud" in text.lower():
            # Half of a surrogate pair is valid JSON and no text: no tokenizer and no store can take it.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # not UTF-8 is a ValueError too
        raise RowInvalid(
            field=field, reason=f"{place} is not JSON: {error}", suggestion="write one JSON object per line"
        ) from error
    return value


def _object(value: Any, place: str, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RowInvalid(
            field=field,
            reason=f"{place} is not a JSON object",
            suggestion='write each row as {"prompt": ..., "answer": ...}',
        )
    return value


def _unreadable(file: Path, field: str, error: OSError) -> FileUnreadable:
    return FileUnreadable(
        field=field, reason=f"{file.name} cannot be read: {error.strerror}", suggestion="make it readable"
    )
