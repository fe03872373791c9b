"""What the API says of replicas and their cost. Times are Unix seconds of the platform's clock."""

from typing import Self

from pydantic import Field

from controller.api.models import View
from controller.runs.holdings import Holding, Holdings, ReplicaState
from controller.runs.ledger import StageCost
from shared.contracts.stage import Stage

OF_LIFE = (
    *("instance", "function", "revision", "stages", "reason", "num_in_flight", "num_cpus", "num_gpus"),
    *("scheduled_at", "started_at", "ready_at", "draining_at", "ended_at", "inferred"),
)
"""Fields that a replica's view takes from its life as they are."""


class ReplicaView(View):
    """One replica of a function."""

    instance: str
    function: str
    revision: str
    stages: tuple[Stage, ...]
    state: ReplicaState
    reason: str
    """Why it is pending, drains or has ended."""
    num_in_flight: int
    """Requests that it works on."""
    num_cpus: float
    num_gpus: int
    scheduled_at: float
    started_at: float | None
    """When it got a place; from then on it holds its resources."""
    ready_at: float | None
    draining_at: float | None
    ended_at: float | None
    inferred: bool
    """Whether a time was not observed, but inferred from the last sign of life."""
    held_s: float
    """For how long it has held its resources since the controller started."""
    usd: float
    """What that has cost."""

    @classmethod
    def of(cls, holding: Holding) -> Self:
        """The view of a replica."""
        of_life = {name: getattr(holding.life, name) for name in OF_LIFE}
        return cls(**of_life, state=holding.state, held_s=holding.held_s, usd=holding.usd)


class FunctionCost(View):
    """What a function's replicas have cost since the controller started, ended ones included."""

    function: str
    num_replicas: int = Field(description="Replicas that have held resources.")
    cpu_seconds: float
    gpu_seconds: float
    usd: float

    @classmethod
    def of(cls, function: str, cost: StageCost) -> Self:
        """The view of a function's cost."""
        return cls(
            function=function,
            num_replicas=cost.num_replicas,
            cpu_seconds=cost.cpu_seconds,
            gpu_seconds=cost.gpu_seconds,
            usd=cost.usd,
        )


class ReplicaList(View):
    """The replicas of all functions, and what they have cost."""

    platform: str
    """The adapter that runs the functions: local, knative or simulated."""
    host: str
    """The controller's machine."""
    since: float
    """When this controller started: costs count from here."""
    now: float
    cpu_hour_usd: float
    """Price of a CPU that is held for an hour."""
    gpu_hour_usd: float
    replicas: tuple[ReplicaView, ...]
    costs: tuple[FunctionCost, ...]

    @classmethod
    def of(cls, held: Holdings, *, platform: str, host: str, ended: bool) -> Self:
        """The view of what is held; with ``ended`` also of replicas that hold nothing any more."""
        shown = [holding for holding in held.replicas if ended or holding.state is not ReplicaState.ENDED]
        return cls(
            platform=platform,
            host=host,
            since=held.since,
            now=held.now,
            cpu_hour_usd=held.price.cpu_hour_usd,
            gpu_hour_usd=held.price.gpu_hour_usd,
            replicas=tuple(ReplicaView.of(holding) for holding in shown),
            costs=tuple(FunctionCost.of(name, cost) for name, cost in sorted(held.costs.items())),
        )
