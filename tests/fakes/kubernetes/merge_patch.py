"""JSON merge patch, as RFC 7386 has it."""

from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """The target after the patch: objects are merged, a null takes a member away, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
