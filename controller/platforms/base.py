"""The platform port: where functions run. Three adapters implement it (knative, local, simulated).

The controller reaches functions, asks for replicas, looks at them and reads the time only through this port, so
the same step runs on a cluster, on one machine and in virtual time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformReply:
    """An HTTP answer, whoever gave it: the function, or the platform in its place (502, 503, 504)."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLife:
    """The life of one replica, in Unix seconds. A phase that was not reached is ``None`` (DESIGN, rule 8)."""

    instance: InstanceId
    function: str
    """Name of its Knative Service."""
    stages: tuple[Stage, ...]
    revision: str
    num_cpus: float
    num_gpus: int
    scheduled_at: float
    started_at: float | None = None
    ready_at: float | None = None
    draining_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    """Why it is pending or why it ended: "unschedulable: 3 of 2 cpus", "scaled down", "killed by signal 9"."""
    inferred: bool = False
    """True where a time was not observed but inferred from the last sign of life."""
    num_in_flight: int = 0
    """Requests that it works on now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionState:
    """One revision of a function as the platform sees it now."""

    name: str
    percent: int
    """Share of the function's requests that go to it."""
    tags: tuple[str, ...] = ()
    """Host names of its own, as ``<tag>-<function>``."""
    ready: bool = True
    """Whether it has been ready once, so that it may get requests."""
    reason: str = ""
    """Why its replicas cannot start; empty while they can."""
    num_replicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionState:
    """One function as the platform sees it now."""

    name: str
    stages: tuple[Stage, ...]
    url: str
    revision: str
    image: str
    ready: bool
    reason: str
    num_replicas: int
    num_ready: int
    num_pending: int
    num_in_flight: int
    num_queued: int
    min_scale: int
    max_scale: int
    revisions: tuple[RevisionState, ...] = ()
    """Those that the platform keeps, the oldest first."""
    pinned: bool = False
    """Whether somebody else than the controller has named the revision that gets the requests: a newer one waits."""
    activator_in_path: bool = True
    """Whether requests wait in one queue for all replicas, and not each at a replica that was chosen for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFigures:
    """What replicas cost to get and to give back, until that is measured, and what the platform can be asked for.

    The defaults are those of Knative 1.23 on one node, measured with small containers.
    """

    cold_start_s: float = 3.3
    """From asking for replicas until they take calls, without weights."""
    drain_s: float = 30.0
    """For which a replica that was told to end still holds its resources."""
    bandwidth_bytes_per_s: float | None = None
    """Between a replica and the store; ``None`` where nobody knows."""
    round_trip_s: float = 0.001
    """Between a replica and the store, whatever the size."""
    shared_threads: bool = False
    """Whether all replicas compute on the same cores: one machine."""
    num_near: int = 0
    """Replicas that it can put on the learner's node, or that are there anyway."""


class FunctionUnreachable(Exception):
    """No answer from the platform or the function: connection refused, reset, or a timeout. Retry elsewhere."""


class FunctionUnknown(Exception):
    """The platform has no function for the stage."""


class Platform(Protocol):
    """What the controller may ask of the place where functions run."""

    def now(self) -> float:
        """Unix time in seconds (virtual on the simulated platform)."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait in this platform's time."""
        ...

    def figures(self) -> PlatformFigures:
        """What replicas cost here before anything is measured, and what can be asked for."""
        ...

    async def invoke(
        self,
        stage: Stage,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        beside: Stage | None = None,
    ) -> PlatformReply:
        """POST a JSON body to the stage's function (GET where the body is empty) and return its answer.

        ``beside`` prefers a function whose process serves that stage too, where there is one.

        Raises ``FunctionUnreachable`` where there is no HTTP answer, ``FunctionUnknown`` without a function.
        """
        ...

    async def scale(self, stage: Stage, num_replicas: int, *, hold_until: float) -> None:
        """Ask for at least ``num_replicas`` of the stage's function until the time ``hold_until``.

        Returns at once. 0 withdraws the request; replicas then leave as the function's own scaling decides. Who asks
        for more than before has work for all of them: what ``retire`` said of any does not hold any more.
        """
        ...

    async def retire(self, stage: Stage, instances: Sequence[InstanceId]) -> None:
        """Say that these replicas have no more to do, so that the next scale-down takes them before the others.

        Names that the platform does not know are passed over: their replicas have ended.
        """
        ...

    async def release(self, stage: Stage) -> None:
        """Free the function's replicas now: withdraw any hold, drain the idle and end the cancelled."""
        ...

    async def replicas(self) -> Sequence[ReplicaLife]:
        """Lives of all replicas known, ended ones included as long as the platform remembers them."""
        ...

    async def functions(self) -> Sequence[FunctionState]:
        """All functions and their state."""
        ...
