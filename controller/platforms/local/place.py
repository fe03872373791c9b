"""Where revisions run: what starts their replicas, what tells the time, and what all of them have in common."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from controller.platforms.local.pacing import Pacing
from controller.platforms.local.replica import Clock, Replica
from shared.contracts.ids import InstanceId


class Starter(Protocol):
    """What runs replicas: processes on this machine, or something that behaves like them."""

    def try_start(self, replica: Replica, env: Mapping[str, str]) -> str | None:
        """Start a pending replica. None, or why it has to stay pending."""
        ...

    def ended(self, replica: Replica) -> None:
        """Give back what an ended replica had."""
        ...

    def log_path(self, instance: InstanceId) -> Path:
        """File of a replica's output."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Made where its loop runs."""

    starter: Starter
    clock: Clock
    queue_limit: int
    """Requests that may wait for one revision; more get 503."""
    drain_quiet_s: float = 0.0
    """How long a draining replica is left alone before SIGTERM."""
    pacing: Pacing = field(default_factory=Pacing)
    random: Random = field(default_factory=Random)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """Durations are counted on its clock."""
