"""One row of a data file."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: its columns as JSON values, and where it stands."""

    columns: dict[str, Any]
    place: str
    """For messages: ``train.jsonl line 13``."""
