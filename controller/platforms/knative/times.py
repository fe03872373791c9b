"""Times as Kubernetes writes them: RFC 3339 in UTC, whole seconds; durations as Go writes them. Pure."""

import math
import re
from datetime import UTC, datetime

_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}


def to_text(unix_s: float) -> str:
    """``2026-11-29T12:00:00Z``, rounded up: what is held until then is held for no less than was asked."""
    return datetime.fromtimestamp(math.ceil(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: object) -> float | None:
    """Unix seconds, or None where the text is no time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def duration_s(text: str, *, default: float) -> float:
    """Seconds of ``15s`` or ``1m30s``; the default where the text is no duration."""
    part = r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)"
    if re.fullmatch(f"(?:{part})+", text) is None:
        return default
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in re.findall(part, text))
