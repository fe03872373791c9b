"""What parquet files and saved datasets share: pyarrow, which is optional, and its values as JSON values."""

from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from typing import Any

from controller.runs.data.errors import FileUnreadable, RowInvalid

ARROW_ERRORS = (OSError, ValueError, NotImplementedError)
"""What pyarrow raises, by its base classes."""


def import_arrow(module: str, *, name: str, field: str) -> Any:
    """A module of pyarrow. Raises ``FileUnreadable`` where it is not installed; ``name`` is the file's."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise FileUnreadable(
            field=field,
            reason=f"reading {name} needs pyarrow, which is not installed",
            suggestion="install pyarrow beside the controller (the extra rlhfless[parquet]), or save the rows as JSONL",
        ) from error


def json_columns(columns: dict[str, Any], *, place: str, field: str) -> dict[str, Any]:
    """A row's values as JSON values; dates and times become ISO text. Raises ``RowInvalid`` for what has none."""
    return {name: _json_value(value, place, name, field) for name, value in columns.items()}


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
