"""When a request to the Kubernetes API is sent again, and after how long. Pure."""

from collections.abc import Mapping

MAX_ATTEMPTS = 6
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
LONGEST_RETRY_AFTER_S = 30.0
"""A server that asks for more than this is waited for no longer."""

LATER = frozenset({429, 500, 502, 503, 504})
"""Statuses that another attempt may not meet: every request here may be repeated."""


def pause_s(attempt: int, headers: Mapping[str, str]) -> float:
    """Seconds after attempt ``attempt``, counted from 0: what the server asks for, else twice as long each time."""
    asked = headers.get("retry-after", "")
    if asked.isdecimal():
        return min(float(asked), LONGEST_RETRY_AFTER_S)
    return min(FIRST_PAUSE_S * 2.0**attempt, LONGEST_PAUSE_S)
