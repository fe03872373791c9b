"""Why a run cannot go on, named by the boundary that was crossed."""

from shared.contracts.stage import Stage


class RunFailed(Exception):
    """The run stops as ``failed`` with this reason. It can be resumed once the cause is gone."""


class StageFailed(RunFailed):
    """A stage answered with an error that another attempt cannot mend."""

    def __init__(self, stage: Stage, code: str, message: str) -> None:
        super().__init__(f"{stage}: {message} ({code})")
        self.stage = stage
        self.code = code


class StageUnavailable(RunFailed):
    """A stage gave no result in all the attempts that it was granted."""


class ContractBroken(RunFailed):
    """A function's answer does not match its call: another key, version or digest."""


class RunLost(Exception):
    """Another controller owns the run now. Not a failure of the run."""


class RunUnknown(Exception):
    """There is no run of this name."""


class RunConflict(Exception):
    """The run's state does not allow what was asked."""


class StepUnknown(Exception):
    """The run has no step of this number, or has kept nothing of it."""


class NotPlannedYet(Exception):
    """The run's step is still to come."""


class CheckpointUnknown(Exception):
    """The run has no checkpoint of this step."""
