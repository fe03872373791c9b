"""Parquet files to columns as JSON values. Needs pyarrow, which is optional."""

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from controller.runs.data.errors import FileUnreadable, RowInvalid


def read_parquet(file: Path, *, field: str) -> Iterator[dict[str, Any]]:
    """The rows of a file, one batch in memory at a time. Dates and times become ISO text.

    Raises ``FileUnreadable`` without pyarrow or for a broken file, ``RowInvalid`` for a value that JSON cannot hold.
    """
    try:
        parquet = import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise FileUnreadable(
            field=field,
            reason=f"reading {file.name} needs pyarrow, which is not installed",
            suggestion="install pyarrow beside the controller, or save the rows as JSONL",
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(file) as content:
            for batch in content.iter_batches():
                for columns in batch.to_pylist():
                    number += 1
                    place = f"{file.name} row {number}"
                    yield {name: _json_value(value, place, name, field) for name, value in columns.items()}
    except RowInvalid:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # what pyarrow raises, by its base classes
        raise FileUnreadable(
            field=field, reason=f"{file.name} is not readable parquet: {error}", suggestion="save it again"
        ) from error


def _json_value(value: Any, place: str, column: str, field: str) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():  # the entries of a map come as pairs
            return [_json_value(item, place, column, field) for item in value]
        case dict():
            return {name: _json_value(item, place, column, field) for name, item in value.items()}
        case _:
            raise RowInvalid(
                field=field,
                reason=f"{place}: column {column!r} holds {type(value).__name__}, which is not text or numbers",
                suggestion="drop the column or save it as text",
            )
