"""The port of what answers a model between its turns."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn that has just ended."""

    text: str
    """Of all its sampled tokens, special ones spelled out."""
    token_ids: tuple[int, ...]
    stop: str | None
    """The stop string that ended it; None if an EOS token did."""


class Environment(Protocol):
    """Answers turns. A pure function of the turn: whoever continues a completion elsewhere gets the same answer."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a turn, so that it can be answered."""
        ...

    def answer(self, turn: Turn) -> str | None:
        """The text to insert before the next turn; None, or nothing, if the completion is finished.

        What the model did wrong is told to the model, as text; it is never raised.
        """
        ...

    def is_error(self, inserted: str) -> bool:
        """Whether an answer tells of a mistake, for the metrics."""
        ...
