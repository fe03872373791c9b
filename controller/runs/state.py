"""The states of a run, and which may follow which."""

from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    """Its owner is gone or was stopped; whoever owns it next goes on at its head."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing goes on by itself any more."""
        return self in (RunState.FAILED, RunState.CANCELLED, RunState.SUCCEEDED)

    @property
    def is_resumable(self) -> bool:
        """Whether ``resume`` queues it again. A run that succeeded has nothing left to do."""
        return self in (RunState.FAILED, RunState.CANCELLED, RunState.PAUSED)


PENDING = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)
"""States in which an owner picks the run up: after a crash it still says ``running``."""
