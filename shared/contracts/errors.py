"""any stage → controller: a failed call as a typed problem, named by the boundary that was crossed.

Functions raise these; ``shared.service.errors`` maps them to HTTP in one table; the controller's stage client
turns the body back into the same type.
"""

from typing import ClassVar

from pydantic import Field

from shared.contracts.wire import Wire


class Problem(Wire):
    """The JSON body of every error answer."""

    code: str
    message: str
    """What happened and what to do about it."""
    retryable: bool = False
    retry_after_s: float | None = None
    details: dict[str, str | int | float | None] = Field(default_factory=dict)


class StageError(Exception):
    """A stage call that has no result. ``code`` is the stable name of the failure."""

    code: ClassVar[str] = "stage_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: str | int | float | None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def problem(self) -> Problem:
        """The wire form."""
        return Problem(code=self.code, message=self.message, retryable=self.retryable, details=self.details)


class InvalidInput(StageError):
    """The call's inputs cannot be worked on; the same call can never succeed."""

    code = "invalid_input"
    status = 422


class Unauthenticated(StageError):
    """The token is missing or wrong."""

    code = "unauthenticated"
    status = 401


class CallConflict(StageError):
    """The key already stands for another body."""

    code = "call_conflict"
    status = 409


class StaleFence(StageError):
    """The caller no longer owns the run."""

    code = "stale_fence"
    status = 409


class WrongPolicy(StageError):
    """The weights that the call names cannot be served: another digest, or rows of mixed versions."""

    code = "wrong_policy"
    status = 412


class CallBusy(StageError):
    """Another replica is computing this key: come back for its result."""

    code = "call_busy"
    status = 425
    retryable = True


class Cancelled(StageError):
    """The call was cancelled before it had a result."""

    code = "cancelled"
    status = 409


class StoreUnavailable(StageError):
    """Redis or the blob store did not answer."""

    code = "store_unavailable"
    status = 500
    retryable = True


class StoreRefused(StageError):
    """The store refused to keep more: disk full, byte budget spent, or a folder that cannot be written."""

    code = "store_refused"
    status = 507


class MissingBlob(StageError):
    """A reference names bytes that are not there or do not match their digest."""

    code = "missing_blob"
    status = 410


class PoisonedItem(StageError):
    """One work item ended its worker every time it was tried."""

    code = "poisoned_item"
    status = 500


class RewardFailed(StageError):
    """The reward of a completion could not be computed. Never a score of 0."""

    code = "reward_failed"
    status = 500


class RewardTimeout(RewardFailed):
    """The reward function did not answer within its limit."""

    code = "reward_timeout"


class UpdateFailed(StageError):
    """The learner's update cannot be applied (non-finite gradient, deadline too short for one update)."""

    code = "update_failed"
    status = 500


STAGE_ERRORS: dict[str, type[StageError]] = {
    error.code: error
    for error in (
        StageError,
        InvalidInput,
        Unauthenticated,
        CallConflict,
        StaleFence,
        WrongPolicy,
        CallBusy,
        Cancelled,
        StoreUnavailable,
        StoreRefused,
        MissingBlob,
        PoisonedItem,
        RewardFailed,
        RewardTimeout,
        UpdateFailed,
    )
}
