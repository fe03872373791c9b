"""From exception to HTTP, in one table."""

from fastapi.responses import Response
from pydantic import ValidationError

from shared.contracts.errors import InvalidInput, Problem, StageError

STATUS_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    425: {"Retry-After": "1"},
}
"""Headers that belong to a status. The status itself stands on the error's type (``shared.contracts.errors``)."""

MAX_FIELD_PROBLEMS = 5


def problem_response(error: StageError) -> Response:
    """The answer for a failed call."""
    return Response(
        error.problem().model_dump_json(),
        status_code=error.status,
        media_type="application/problem+json",
        headers=STATUS_HEADERS.get(error.status, {}),
    )


def unexpected_response(error: Exception) -> Response:
    """The answer for a defect: its type, but nothing that its message may give away."""
    problem = Problem(
        code="internal_error",
        message=f"the function failed with {type(error).__name__}: see its log",
        retryable=True,
    )
    return Response(problem.model_dump_json(), status_code=500, media_type="application/problem+json")


def invalid_body(error: ValidationError) -> InvalidInput:
    """A body that does not meet its contract, with the fields and reasons."""
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    more = f" (and {len(problems) - MAX_FIELD_PROBLEMS} more)" if len(problems) > MAX_FIELD_PROBLEMS else ""
    return InvalidInput("; ".join(problems[:MAX_FIELD_PROBLEMS]) + more)
