"""JSON at the edge: what comes in can be stored, compared and printed; what goes out is always valid JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

MAX_DEPTH = 32
MAX_BITS = 1024
"""Larger integers do not fit into a float; YAML also reads ones that Python refuses to print."""
MAX_VALUES = 50_000
"""Far above any config; what is larger, or refers to itself, was not written to be one."""


class NotJson(ValueError):
    """The body is not JSON, or says something that JSON or Unicode cannot hold."""


def parse_json(body: bytes) -> Any:
    """Read a JSON document strictly. Raises ``NotJson``.

    Refused beyond broken syntax: names given twice, NaN and infinities, and whatever ``fault_of`` finds.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique_names)
    except NotJson:
        raise
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"the body is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise NotJson(f"the body has more than {MAX_DEPTH} levels") from error
    except ValueError as error:
        # An integer with more digits than Python converts.
        raise NotJson("the body has a number that is too long") from error
    fault = fault_of(value)
    if fault is not None:
        raise NotJson(f"the body {fault}")
    return value


def fault_of(value: Any) -> str | None:
    """Why a value cannot be worked with, as the rest of a sentence; ``None`` if it can.

    Also for values that YAML made: these may contain themselves, or one part many times over.
    """
    pending = [(value, 1)]
    num_values = 0
    while pending:
        current, depth = pending.pop()
        num_values += 1
        if depth > MAX_DEPTH:
            return f"has more than {MAX_DEPTH} levels"
        if num_values > MAX_VALUES:
            return f"has more than {MAX_VALUES} values"
        match current:
            case str():
                if not _is_clean(current):
                    return "has text with a null character or half a character"
            case int():
                if current.bit_length() > MAX_BITS:
                    return "has a number that is too long"
            case float():
                if not math.isfinite(current):
                    return "has a number that is not finite"
            case Mapping():
                pending.extend((part, depth + 1) for pair in current.items() for part in pair)
            case Sequence() | set() if not isinstance(current, bytes):
                pending.extend((part, depth + 1) for part in current)
    return None


def presentable(value: Any) -> Any:
    """The value as JSON can show it: numbers that are not finite become null, broken characters ``?``."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {presentable(str(name)): presentable(part) for name, part in value.items()}
        case list() | tuple():
            return [presentable(part) for part in value]
    return value


def _is_clean(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _no_constant(name: str) -> Any:
    raise NotJson(f"the body has {name}, which is not a JSON number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in values if names.count(name) > 1)
        raise NotJson(f"the body gives {presentable(twice)!r} twice in one object")
    return values
