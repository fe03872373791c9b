"""From exception to HTTP, in one table. Every error answer is one ``ApiProblem``."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from controller.api.json_text import NotJson, presentable
from controller.api.models import ApiProblem, FieldProblem
from controller.platforms.base import FunctionUnknown, FunctionUnreachable
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.data.errors import DatasetInUse, DatasetUnknown, UploadInvalid, UploadTooLarge
from controller.runs.errors import CheckpointUnknown, NotPlannedYet, RunConflict, RunUnknown, StepUnknown
from controller.runs.function_swaps import EditingUnsupported
from shared.contracts.errors import CallConflict, StageError, StoreRefused, StoreUnavailable

log = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
MAX_PROBLEMS = 100
"""Problems shown of one config."""
MAX_TEXT = 1000
"""Characters shown of one text of a problem: a hostile key may have millions."""


class Unauthenticated(Exception):
    """The bearer token is missing or wrong."""


class NotAllowed(Exception):
    """The token is right, but not for this."""


class UnsupportedMediaType(Exception):
    """The body is not of a type that the route reads."""


class BodyTooLarge(Exception):
    """The body is larger than the route reads."""


class NotReady(Exception):
    """The controller cannot serve now; ``reasons`` says why."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


STATUSES: Mapping[type[Exception], tuple[int, str]] = MappingProxyType(
    {
        Unauthenticated: (401, "unauthenticated"),
        NotAllowed: (403, "not_allowed"),
        RunUnknown: (404, "run_unknown"),
        FunctionUnknown: (404, "function_unknown"),
        CheckpointUnknown: (404, "checkpoint_unknown"),
        DatasetUnknown: (404, "dataset_unknown"),
        StepUnknown: (404, "step_unknown"),
        RunConflict: (409, "run_conflict"),
        EditingUnsupported: (409, "editing_unsupported"),
        NotPlannedYet: (409, "not_planned_yet"),
        CallConflict: (409, "idempotency_conflict"),
        DatasetInUse: (409, "dataset_in_use"),
        BodyTooLarge: (413, "body_too_large"),
        UploadTooLarge: (413, "body_too_large"),
        UnsupportedMediaType: (415, "unsupported_media_type"),
        NotJson: (422, "not_json"),
        UploadInvalid: (422, "dataset_invalid"),
        ConfigInvalid: (422, "config_invalid"),
        RequestValidationError: (422, "invalid_request"),
        NotReady: (503, "not_ready"),
        StoreUnavailable: (503, "store_unavailable"),
        FunctionUnreachable: (503, "function_unreachable"),
        StoreRefused: (507, "store_refused"),
    }
)
"""Status and code of each exception that a user may meet. Any other is a defect: 500."""

HEADERS: Mapping[int, Mapping[str, str]] = MappingProxyType(
    {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}
)


def add_error_handlers(app: FastAPI) -> None:
    """Let every exception of the table, of the framework and of no kind foreseen answer with a problem."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem_response(error)

    for kind in (*STATUSES, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def problem_response(error: Exception) -> Response:
    """The answer for an exception."""
    status, problem = describe(error)
    headers = dict(HEADERS.get(status, {}))
    if isinstance(error, HTTPException):
        headers |= error.headers or {}
    return Response(problem.model_dump_json(), status_code=status, media_type=PROBLEM_JSON, headers=headers)


def describe(error: Exception) -> tuple[int, ApiProblem]:
    """Status and body for an exception."""
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.status_code)
        return status, ApiProblem(code=status.name.lower(), message=_framework_message(error))
    known = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    if known is None:
        # Its message may give away what the caller has no business to know.
        message = f"the controller failed with {type(error).__name__}: see its log"
        return 500, ApiProblem(code="internal_error", message=message, retryable=True)
    status_code, code = known
    problems, message = _problems(error), str(error)
    if isinstance(error, UploadInvalid):
        message = "the dataset cannot be used; nothing was stored"
    elif isinstance(error, ConfigInvalid):
        count = len(error.problems)
        message = f"the config has {'a problem' if count == 1 else f'{count} problems'}; nothing was started"
    elif isinstance(error, RequestValidationError):
        message = "; ".join(f"{problem.field}: {problem.reason}" for problem in problems)
    return status_code, ApiProblem(
        code=code,
        message=presentable(message),
        retryable=status_code == 503,
        problems=problems,
        details=error.details if isinstance(error, StageError) else {},
    )


def _problems(error: Exception) -> tuple[FieldProblem, ...]:
    if isinstance(error, ConfigInvalid):
        return tuple(_field_problem(problem) for problem in error.problems[:MAX_PROBLEMS])
    if isinstance(error, RequestValidationError):
        return tuple(
            FieldProblem(
                field=".".join(str(part) for part in fault["loc"]), reason=fault["msg"], suggestion="see /docs"
            )
            for fault in error.errors()
        )
    if isinstance(error, NotReady):
        return tuple(
            FieldProblem(field="readiness", reason=reason, suggestion="retry later") for reason in error.reasons
        )
    return ()


def _field_problem(problem: ConfigProblem) -> FieldProblem:
    return FieldProblem(
        field=presentable(problem.field)[:MAX_TEXT],
        reason=presentable(problem.reason)[:MAX_TEXT],
        suggestion=presentable(problem.suggestion)[:MAX_TEXT],
    )


def _framework_message(error: HTTPException) -> str:
    match error.status_code:
        case 404:
            return "there is nothing at this path: see /docs for what there is"
        case 405:
            return "this path does not take this method: see /docs for what it takes"
    return error.detail
