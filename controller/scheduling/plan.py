"""The plan of one step: which actor samples which prompts, with how many threads. Pure: a value, no effects."""

from dataclasses import dataclass

from controller.scheduling.actor_count import choose_num_actors
from controller.scheduling.assignment import assign_in_order
from shared.contracts.rollout import WorkItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the platform grants to the stages that compute at once."""

    num_threads: int
    """Compute threads of the machine, or of one replica on a cluster."""
    max_actors: int
    """Replicas of rollout that the platform can run."""
    shared_threads: bool
    """Whether all replicas compute on the same cores (one machine), or each has its own (a cluster)."""


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

    @property
    def num_actors(self) -> int:
        """Number of rollout replicas that the plan asks for."""
        return len(self.assigned)


def plan_step(
    row_uids: tuple[str, ...], *, group_size: int, resources: Resources, num_actors: int | None = None
) -> StepPlan:
    """A plan for sampling ``group_size`` completions of each row. ``num_actors`` overrides the policy's choice."""
    items = tuple(WorkItem(row_uid=uid, samples=tuple(range(group_size))) for uid in row_uids)
    wanted = choose_num_actors(len(items), resources.num_threads, resources.max_actors)
    count = max(1, min(num_actors or wanted, len(items), resources.max_actors))
    threads = resources.num_threads
    return StepPlan(
        assigned=assign_in_order(items, count),
        rollout_threads=max(1, threads // count) if resources.shared_threads else threads,
        learner_threads=threads,
    )
