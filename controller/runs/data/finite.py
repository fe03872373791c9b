"""Numbers that JSON has: neither NaN nor an infinity, which Python's own JSON and Arrow files both hold."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from controller.runs.data.errors import RowInvalid
from controller.runs.data.row import Row


def finite_rows(rows: Iterable[Row], *, field: str) -> Iterator[Row]:
    """The rows as they come. Raises ``RowInvalid`` at one with a number that nobody could be sent."""
    for row in rows:
        for column, value in row.columns.items():
            if not _is_finite(value):
                raise RowInvalid(
                    field=field,
                    reason=f"{row.place}: column {column!r} holds NaN or an infinite number, which JSON has not",
                    suggestion="write null, correct the number, or drop the row",
                )
        yield row


def _is_finite(value: Any) -> bool:
    waiting = [value]  # not by recursion: a file may nest deeper than that goes
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return False
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return True
