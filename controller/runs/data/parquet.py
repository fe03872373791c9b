"""Parquet files to rows. Needs pyarrow, which is optional."""

from collections.abc import Iterator
from pathlib import Path

from controller.runs.data.arrow_values import ARROW_ERRORS, import_arrow, json_columns
from controller.runs.data.errors import FileUnreadable, RowInvalid
from controller.runs.data.row import Row


def read_parquet(file: Path, *, field: str) -> Iterator[Row]:
    """The rows of a file, one batch in memory at a time.

    Raises ``FileUnreadable`` without pyarrow or for a broken file, ``RowInvalid`` for a value that JSON cannot hold.
    """
    parquet = import_arrow("pyarrow.parquet", name=file.name, field=field)
    number = 0
    try:
        with parquet.ParquetFile(file) as content:
            for batch in content.iter_batches():
                for columns in batch.to_pylist():
                    number += 1
                    place = f"{file.name} row {number}"
                    yield Row(columns=json_columns(columns, place=place, field=field), place=place)
    except RowInvalid:
        raise
    except ARROW_ERRORS as error:
        raise FileUnreadable(
            field=field, reason=f"{file.name} is not readable parquet: {error}", suggestion="save it again"
        ) from error
