"""What a check is and what comes of it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from controller.conformance.subject import Subject, SubjectUnreachable
from shared.contracts.errors import StageError

T = TypeVar("T")


class Verdict(StrEnum):
    """What a check found."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class CheckFailed(Exception):
    """The function does something else than the contract says: what, and what it should do."""


class CheckSkipped(Exception):
    """The check needs something that was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check's result."""

    check: str
    verdict: Verdict
    said: str
    """What was seen, or what is wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    """``run`` returns what it saw. Raises ``CheckFailed`` or ``CheckSkipped``."""

    name: str
    run: Callable[[], Awaitable[str]]


async def findings_of(checks: Sequence[Check], subject: Subject) -> list[Finding]:
    """All of the checks, in order; last, whether any answer was one that no function may give."""
    found = [await _finding(check) for check in checks]
    odd = sorted({f"{answer.status} to {answer.what}" for answer in subject.answers if answer.status in NEVER})
    found.append(
        Finding(
            check="never 202, 502, 503 or 504",
            verdict=Verdict.FAILED if odd else Verdict.PASSED,
            said="; ".join(odd) + ": these are the platform's to give, and work in the background dies with its replica"
            if odd
            else f"{len(subject.answers)} answers",
        )
    )
    return found


NEVER = frozenset({202, 502, 503, 504})


def expect(condition: object, otherwise: str) -> None:
    """Raises ``CheckFailed`` unless the condition holds."""
    if not condition:
        raise CheckFailed(otherwise)


async def _finding(check: Check) -> Finding:
    try:
        verdict, said = Verdict.PASSED, await check.run()
    except CheckFailed as error:
        verdict, said = Verdict.FAILED, str(error)
    except CheckSkipped as error:
        verdict, said = Verdict.SKIPPED, str(error)
    except SubjectUnreachable as error:
        verdict, said = Verdict.FAILED, f"no answer: {error}"
    except StageError as error:
        verdict, said = Verdict.FAILED, f"the store that was named: {error.message}"
    return Finding(check=check.name, verdict=verdict, said=said)
