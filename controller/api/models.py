"""What the API answers with. Times are Unix seconds."""

from dataclasses import replace
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from controller.api.json_text import presentable
from controller.platforms.base import FunctionState
from controller.runs.checkpoints import CheckpointInfo
from controller.runs.scrubbing import scrubbed
from controller.runs.service import DryRun
from controller.runs.state import RunState
from shared.contracts.errors import Problem
from shared.contracts.stage import Stage
from shared.store.base import RunRecord


class View(BaseModel):
    """An answer. The docstring under a field is its description in the API's documentation."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class FieldProblem(View):
    """One fault of the input."""

    field: str
    """The key as it was spelled."""
    reason: str
    suggestion: str
    """What to do about it."""


class ApiProblem(Problem):
    """The body of every error answer; ``problems`` has the single faults of the input, if that is what is wrong."""

    problems: tuple[FieldProblem, ...] = ()


class RunSummary(View):
    """A run, without its config."""

    id: str
    state: RunState
    created_at: float
    updated_at: float
    cancel_requested: bool
    """Whether somebody asked for the run to end; it does within seconds."""
    info: dict[str, Any]
    """What the run noted of itself: the step it is at, the reason why it failed."""

    @classmethod
    def of(cls, record: RunRecord) -> Self:
        """The view of a stored run."""
        return cls.model_validate(presentable({name: getattr(record, name) for name in cls.model_fields}))


class RunView(RunSummary):
    """A run."""

    config: dict[str, Any]
    """The whole config, with every default as it holds. What looks like a secret is hidden."""

    @classmethod
    def of(cls, record: RunRecord) -> Self:
        """The view of a stored run."""
        return super().of(replace(record, config=scrubbed(record.config)))


class RunList(View):
    """Runs, the newest first."""

    runs: tuple[RunSummary, ...]


class DryRunView(View):
    """What a run would be. Nothing was started."""

    config: dict[str, Any]
    """The whole config, with every default as it would hold. What looks like a secret is hidden."""
    notes: tuple[str, ...]
    """What was decided for the user, such as which columns of the data were recognised."""
    num_rows: int
    """Training rows."""
    num_heldout_rows: int
    total_steps: int

    @classmethod
    def of(cls, dry_run: DryRun) -> Self:
        """The view of a checked config."""
        shown = replace(dry_run, config=scrubbed(dry_run.config))
        return cls.model_validate(presentable({name: getattr(shown, name) for name in cls.model_fields}))


class RunHistory(View):
    """What a run measured."""

    run: str
    history: tuple[dict[str, Any], ...]
    """One line per step, evaluation and checkpoint, in order: ``kind``, ``step``, ``time``, and its measurements.

    ``metrics`` are under verl's names; ``ledger`` says by function what the time since the line before did cost."""


class RunOutcome(View):
    """What a run has come to so far."""

    accuracy_before: float | None
    """Mean reward on the held-out rows before the first step; null where it was not evaluated."""
    accuracy_after: float | None
    """The same at the latest evaluation of a trained policy."""
    steps: int
    """Steps finished."""
    train_s: float | None
    """From the first request to the end of the last step."""
    ledger: dict[str, dict[str, dict[str, float]]]
    """Purpose (init, train, eval) → function → what it cost: seconds by what they were spent on, and money."""
    checkpoint: str | None
    """Folder of the newest checkpoint."""


class CheckpointView(View):
    """A checkpoint that can be downloaded."""

    step: int
    """Steps finished when it was written."""
    folder: str
    """Where it lies on the controller's disk."""
    num_bytes: int
    created_at: float
    metric: float | None
    """What ``trainer.keep_best`` compares: accuracy on the held-out rows, unless the config says otherwise."""
    download: str
    """Path of its tar archive below this API's address."""

    @classmethod
    def of(cls, run: str, info: CheckpointInfo) -> Self:
        """The view of a checkpoint of ``run``."""
        return cls(
            step=info.step,
            folder=info.folder,
            num_bytes=info.num_bytes,
            created_at=info.created_at,
            metric=info.metric,
            download=f"/v1/runs/{run}/checkpoints/{info.step}/download",
        )


class CheckpointList(View):
    """Checkpoints, the oldest first."""

    checkpoints: tuple[CheckpointView, ...]


class RevisionView(View):
    """A revision of a function."""

    name: str
    percent: int
    """Share of the function's requests that go to it."""
    tags: tuple[str, ...]
    """Host names of its own, as ``<tag>-<function>``."""
    ready: bool
    num_replicas: int


class FunctionView(View):
    """A function as the platform sees it now."""

    name: str
    stages: tuple[Stage, ...]
    url: str
    revision: str
    image: str
    ready: bool
    reason: str
    """Why it is not ready."""
    num_replicas: int
    num_ready: int
    num_pending: int
    num_in_flight: int
    """Requests that replicas are working on."""
    num_queued: int
    """Requests that wait for a replica."""
    min_scale: int
    max_scale: int = Field(description="0: no limit.")
    revisions: tuple[RevisionView, ...]
    """Those that the platform keeps, the oldest first."""

    @classmethod
    def of(cls, state: FunctionState) -> Self:
        """The view of a function's state."""
        return cls.model_validate(state, from_attributes=True)


class FunctionList(View):
    """The functions of the platform."""

    functions: tuple[FunctionView, ...]


class Status(View):
    """A sign of life."""

    status: str
