"""Data files to rows, by their format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from controller.runs.data.csv_rows import read_csv
from controller.runs.data.errors import DatasetEmpty, FileUnreadable
from controller.runs.data.finite import finite_rows
from controller.runs.data.json_rows import read_json, read_json_lines
from controller.runs.data.parquet import read_parquet
from controller.runs.data.row import Row
from controller.runs.data.saved_dataset import STATE_FILE, read_saved_dataset

FORMATS: Mapping[str, Callable[..., Iterator[Row]]] = MappingProxyType(
    {
        ".jsonl": read_json_lines,
        ".ndjson": read_json_lines,
        ".json": read_json,
        ".csv": read_csv,
        ".parquet": read_parquet,
    }
)
"""Reader of each format, by the end of a file's name."""


def read_rows(files: Sequence[Path], *, field: str) -> list[Row]:
    """All rows of the files, in their order.

    ``field`` names the config key in errors: ``FileUnreadable`` for an unknown or broken format, ``RowInvalid`` for a
    row that is not an object of JSON values, ``DatasetEmpty`` when there is no row at all.
    """
    rows = [row for file in files for row in rows_of(file, field=field)]
    if not rows:
        names = ", ".join(file.name for file in files)
        raise DatasetEmpty(field=field, reason=f"there is no row in {names}", suggestion="name a file with rows")
    return rows


def rows_of(file: Path, *, field: str) -> Iterator[Row]:
    """The rows of one file, or of one folder that ``save_to_disk`` wrote. Raises as ``read_rows``."""
    return finite_rows(_rows_of(file, field=field), field=field)


def _rows_of(file: Path, *, field: str) -> Iterator[Row]:
    if (file / STATE_FILE).is_file():
        return read_saved_dataset(file, field=field)
    read = FORMATS.get(file.suffix.lower())
    if read is None:
        raise FileUnreadable(
            field=field,
            reason=f"{file.name} is of no known format by its name: {', '.join(FORMATS)}",
            suggestion="save it as .jsonl (one JSON object per line) or .parquet",
        )
    return read(file, field=field)
