"""What a step is going to do, and what that is expected to take. A value: it is shown, stored and compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from controller.scheduling.actor_count import Candidate
from controller.scheduling.locality import Place
from controller.scheduling.pipelining import ExecutionHint
from controller.scheduling.prefill_choice import PrefillPlan
from shared.contracts.rollout import WorkItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a plan is expected to take."""

    time_s: float
    """Until the last actor is done, its start included."""
    replica_s: float
    """Seconds that all actors together are held, starts and drains included."""
    unit_s: float
    """The same in GPU-seconds; core-seconds without GPUs."""
    actor_s: tuple[float, ...]
    """Prefill and decoding of each actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What a step is going to do."""

    assigned: tuple[tuple[WorkItem, ...], ...]
    """Work items of each actor."""
    offered: tuple[WorkItem, ...] = ()
    """Work items that any actor may take."""
    rollout_threads: int
    """Compute threads of each actor."""
    learner_threads: int
    expected: Expected | None = None
    """``None`` where nothing was estimated (evaluation)."""
    candidates: tuple[Candidate, ...] = ()
    """Every number of actors that was compared, ascending."""
    prefill: PrefillPlan | None = None
    placement: tuple[Place, ...] = ()
    """Where each actor runs."""
    unhonoured: tuple[str, ...] = ()
    """Constraints that cannot be met, in words."""
    execution: ExecutionHint | None = None
    """Which execution of the whole step would be the fastest; ``None`` where its other parts are not known."""
    techniques: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of each technique that is on: what it is expected to do, by name of the figure."""

    @property
    def num_actors(self) -> int:
        """Number of rollout replicas that the plan asks for."""
        return len(self.assigned)

    @property
    def num_beside_learner(self) -> int:
        """Actors that are no replicas of rollout's own function."""
        return self.placement.count("learner")

    def is_beside_learner(self, actor: int) -> bool:
        """Whether this actor samples in the learner's process."""
        return actor < len(self.placement) and self.placement[actor] == "learner"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        value: dict[str, Any] = _PLAN.dump_python(self, mode="json")
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StepPlan":
        """The plan of ``to_json``. Raises pydantic's ``ValidationError``."""
        return _PLAN.validate_python(value)


_PLAN = TypeAdapter(StepPlan)
