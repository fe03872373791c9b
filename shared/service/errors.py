"""From exception to HTTP, in one table."""

import math

from fastapi.responses import Response
from pydantic import ValidationError

from shared.contracts.errors import InvalidInput, Problem, StageError

STATUS_HEADERS: dict[int, dict[str, str]] = {401: {"WWW-Authenticate": "Bearer"}}
"""Headers that belong to a status. The status itself stands on the error's type (``shared.contracts.errors``)."""

MAX_FIELD_PROBLEMS = 5
TOO_EARLY = 425
MAX_RETRY_AFTER_S = 1.0
"""When to come back for a result that may be there any time."""


def problem_response(error: StageError) -> Response:
    """The answer for a failed call."""
    problem, headers = error.problem(), STATUS_HEADERS.get(error.status, {})
    if error.status == TOO_EARLY:
        details = dict(problem.details)
        retry_after_s = min(MAX_RETRY_AFTER_S, float(details.pop("retry_after_s", None) or MAX_RETRY_AFTER_S))
        problem = problem.model_copy(update={"details": details, "retry_after_s": retry_after_s})
        headers = {"Retry-After": str(math.ceil(retry_after_s))}
    return problem_answer(problem, error.status, headers)


def unexpected_response(error: Exception) -> Response:
    """The answer for a defect: its type, but nothing that its message may give away.

    Worth a retry: what fails unforeseen is often this replica or its machine.
    """
    problem = Problem(
        code="internal_error",
        message=f"the function failed with {type(error).__name__}: see its log",
        retryable=True,
    )
    return problem_answer(problem, 500)


def problem_answer(problem: Problem, status: int, headers: dict[str, str] | None = None) -> Response:
    """A problem as an HTTP answer."""
    return Response(
        problem.model_dump_json(), status_code=status, media_type="application/problem+json", headers=headers
    )


def invalid_body(error: ValidationError) -> InvalidInput:
    """A body that does not meet its contract, with the fields and reasons."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    more = f" (and {len(problems) - MAX_FIELD_PROBLEMS} more)" if len(problems) > MAX_FIELD_PROBLEMS else ""
    return InvalidInput("; ".join(problems[:MAX_FIELD_PROBLEMS]) + more)
