"""Ids in an event log: ``milliseconds-number``, rising."""

import re

from shared.contracts.errors import InvalidInput

EVENT_ID_PATTERN = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?")


def checked_event_id(text: str) -> str:
    """The id, if an event log may have given it (or "0", before the first). Raises ``InvalidInput``."""
    if EVENT_ID_PATTERN.fullmatch(text) is None:
        raise InvalidInput(f"{text[:64]!r} is no event id: give the id of an event, or 0 to read from the beginning")
    return text
