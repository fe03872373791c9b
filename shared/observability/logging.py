"""Logs as JSON lines, with what a reader filters by: run, step, stage, instance."""

import json
import logging
import sys
from typing import Any

FIELDS = ("run", "step", "stage", "code")
"""What a record may carry in ``extra``; the rest of it stays out of the line."""


class JsonFormatter(logging.Formatter):
    """One line per record; ``extra`` fields that are known are kept. ``constant`` goes into every line."""

    def __init__(self, **constant: str) -> None:
        super().__init__()
        self._constant = constant

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        entry: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._constant,
        }
        entry.update({field: getattr(record, field) for field in FIELDS if hasattr(record, field)})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # A line is never lost for what is in it.
        return json.dumps(entry, default=str)


def log_to_stderr(level: str = "INFO", **constant: str) -> None:
    """Send this process's logs to standard error as JSON. ``constant`` goes into every line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(**constant))
    logging.basicConfig(level=level, handlers=[handler], force=True)
