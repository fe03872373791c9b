"""What a simulated function is: its limits and its durations."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from controller.platforms.base import PlatformReply
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """One function, with the words of a Knative Service. Durations in virtual seconds."""

    name: str
    stages: tuple[Stage, ...]
    container_concurrency: int = 1
    """Requests that one replica works on at once."""
    min_scale: int = 0
    max_scale: int = 0
    """0: no bound."""
    window_s: float = 15.0
    """How long a replica stays without a request."""
    cold_start_s: float = 2.0
    """From the scheduling of a replica until it is ready."""
    drain_s: float = 0.0
    """From the order to end until the replica is gone, without requests."""
    timeout_s: float = 600.0
    """Longest time of a request, its wait in the queue included."""
    num_cpus: float = 1.0
    num_gpus: int = 0


class ReplicaView(Protocol):
    """The replica that a request runs on, as the stage's function sees it."""

    @property
    def instance(self) -> InstanceId:
        """Its name."""
        ...

    @property
    def revision(self) -> str:
        """What it was started from."""
        ...

    @property
    def started_at(self) -> float:
        """Unix time."""
        ...

    @property
    def ready_at(self) -> float:
        """Unix time."""
        ...

    @property
    def is_alive(self) -> bool:
        """False after it was killed: a dead process reaches no store any more."""
        ...


StageFunction = Callable[[str, bytes, Mapping[str, str], ReplicaView], Awaitable[PlatformReply]]
"""Answers one request: path, body, headers, and the replica that it runs on. It is cancelled when the caller leaves,
when the replica is told to end, and when it is killed."""
