"""What a rule between keys is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broken:
    """Why the values do not go together, and what to do."""

    reason: str
    suggestion: str


@dataclass(frozen=True, slots=True)
class Rule:
    """Keys, and a check of their values in that order. The first key is the one that is blamed."""

    keys: tuple[str, ...]
    check: Callable[..., Broken | None]
    is_idle: bool = False
    """Whether a broken rule means that the first key has no effect as the others stand."""
