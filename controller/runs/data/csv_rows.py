"""CSV files to rows: columns by the names in the first line, every value as text."""

import csv
from collections.abc import Iterator
from pathlib import Path

from controller.runs.data.errors import FileUnreadable, RowInvalid
from controller.runs.data.row import Row


def read_csv(file: Path, *, field: str) -> Iterator[Row]:
    """The rows of a file as spreadsheets write it (commas, double quotes, UTF-8).

    Raises ``RowInvalid`` for a row with another number of values than there are names, ``FileUnreadable``.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            values = csv.reader(lines, strict=True)
            names = next(values, [])
            if len(set(names)) < len(names):
                raise FileUnreadable(
                    field=field,
                    reason=f"the first line of {file.name} names a column twice",
                    suggestion="give each column a name of its own",
                )
            for row in values:
                place = f"{file.name} line {values.line_num}"
                if row and len(row) != len(names):
                    raise RowInvalid(
                        field=field,
                        reason=f"{place} has {len(row)} values for {len(names)} columns",
                        suggestion="quote values that have commas or line ends in them",
                    )
                if row:
                    yield Row(columns=dict(zip(names, row, strict=True)), place=place)
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise FileUnreadable(
            field=field, reason=f"{file.name} is not readable CSV: {error}", suggestion="save it as CSV in UTF-8"
        ) from error
