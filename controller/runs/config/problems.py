"""What is wrong with a run's input, in a form that an API and a terminal both show."""

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One fault of the input: where it is, what is wrong, what to do."""

    field: str
    """The key as the user spelled it."""
    reason: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}; {self.suggestion}"


def shown(value: object) -> str:
    """A value as messages show it: cut in length and depth, whatever a user sends."""
    try:
        return _SHORT.repr(value)
    except ValueError:
        # Python refuses to write out integers of thousands of digits.
        return f"a {type(value).__name__} that is too long to show"


class ConfigInvalid(ValueError):
    """The run cannot start as asked. Carries every problem that was found, never only the first."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
