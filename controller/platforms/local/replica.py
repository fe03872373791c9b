"""One replica's life: pending, started, ready, draining, ended."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from controller.platforms.base import ReplicaLife
from controller.platforms.local.fork_client import ForkServerError
from controller.platforms.local.http_stream import HttpStream
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.replica_queue import ReplicaQueue
from controller.platforms.local.victims import Candidate
from shared.contracts.ids import InstanceId

_PROBE_EVERY_S = 0.02
"""Knative: every 50 ms."""


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    PENDING = "pending"
    STARTED = "started"
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How a replica has to go. Times are the loop's."""

    reason: str
    kill_at: float
    """Time of SIGKILL."""
    finish_requests: bool
    """Whether SIGTERM waits for the requests in flight."""
    quiet_until: float = 0.0
    """Time before which SIGTERM is not sent."""
    failed: bool = False
    """Whether it goes because it did not do what it should."""

    def hastened(self, other: "Departure") -> "Departure":
        """The quicker way of both, for the newer reason."""
        return replace(
            other,
            kill_at=min(self.kill_at, other.kill_at),
            finish_requests=self.finish_requests and other.finish_requests,
            quiet_until=min(self.quiet_until, other.quiet_until),
            failed=self.failed or other.failed,
        )


class Process(Protocol):
    """A replica's process."""

    @property
    def exit_status(self) -> asyncio.Future[int]:
        """Exit code, or minus the signal's number."""
        ...

    def terminate(self) -> None:
        """SIGTERM to the process."""
        ...

    def kill(self) -> None:
        """SIGKILL to the process and all it has started."""
        ...


class Origin(Protocol):
    """Where a replica listens."""

    async def connect(self) -> HttpStream:
        """A connection at rest. Raises ``OSError`` where nobody listens."""
        ...

    def give_back(self, stream: HttpStream) -> None:
        """Keep or cut a connection after its message."""
        ...

    def close(self) -> None:
        """Close the connections at rest."""
        ...


Clock = Callable[[], float]
"""Unix time in seconds."""
Spawn = Callable[[], Awaitable[Process]]
"""Starts the process. Raises ``ForkServerError``."""
Probe = Callable[[], Awaitable[bool]]
"""Whether the replica takes requests."""


class ReplicaOwner(Protocol):
    """Who is told about a replica's life."""

    def replica_ready(self, replica: "Replica") -> None:
        """It takes requests from now on."""
        ...

    def replica_unavailable(self, replica: "Replica") -> None:
        """It takes no more requests."""
        ...

    def replica_ended(self, replica: "Replica") -> None:
        """It is gone."""
        ...


class Replica:
    """One replica of a function, from the wish for it to its end."""

    def __init__(
        self, instance: InstanceId, manifest: FunctionManifest, revision: str, owner: ReplicaOwner, clock: Clock
    ) -> None:
        self.instance = instance
        self.manifest = manifest
        self.queue = ReplicaQueue(manifest.container_concurrency)
        """Its requests."""
        self.deletion_cost = 0
        """Among the ready, the lower goes first when there are too many."""
        self._clock = clock
        self._origin: Origin | None = None
        self.failed = False
        """After its end: whether it ended without being asked to, or was never ready."""
        self.life = ReplicaLife(
            instance=instance,
            function=manifest.name,
            stages=manifest.stages,
            revision=revision,
            num_cpus=manifest.resources.num_cpus,
            num_gpus=manifest.resources.num_gpus,
            scheduled_at=clock(),
        )
        self._owner = owner
        self._departure: Departure | None = None
        self._suspect = False
        self._changed = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    @property
    def origin(self) -> Origin:
        """Where it listens."""
        if self._origin is None:
            raise RuntimeError(f"replica {self.instance} has not started")
        return self._origin

    @property
    def state(self) -> ReplicaState:
        """Where it is in its life."""
        if self.life.ended_at is not None:
            return ReplicaState.ENDED
        if self._departure is not None:
            return ReplicaState.DRAINING
        if self.life.ready_at is not None:
            return ReplicaState.READY
        return ReplicaState.PENDING if self._living is None else ReplicaState.STARTED

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests now."""
        return self.state is ReplicaState.READY and not self._suspect

    @property
    def candidate(self) -> Candidate:
        """What counts when one of many has to go."""
        ready_at = self.life.ready_at
        return Candidate(
            instance=self.instance,
            placed=self.state is not ReplicaState.PENDING,
            ready=self.is_ready,
            deletion_cost=self.deletion_cost,
            ready_at=0.0 if ready_at is None else ready_at,
            scheduled_at=self.life.scheduled_at,
        )

    def stay_pending(self, reason: str) -> None:
        """Say why it cannot start yet."""
        self.life = replace(self.life, reason=reason)

    def start(self, spawn: Spawn, origin: Origin, probe: Probe) -> None:
        """Start its process, which will listen at ``origin`` and be ready when the probe says so."""
        self._origin = origin
        self.life = replace(self.life, reason="")
        self._living = asyncio.create_task(self._live(spawn, origin, probe), name=f"replica {self.instance}")

    def leave(self, departure: Departure) -> None:
        """Go. A later call can only hasten it."""
        if self.state is ReplicaState.ENDED:
            return
        first = self._departure is None
        self._departure = departure if self._departure is None else self._departure.hastened(departure)
        if self._living is None:
            self._end(departure.reason, failed=False)
            return
        if first:
            self._owner.replica_unavailable(self)
        if self.life.started_at is None:
            self._living.cancel()  # there is no process yet
        elif first:
            self.life = replace(self.life, draining_at=self._clock(), reason=departure.reason)
        self._changed.set()

    def suspect(self) -> None:
        """It could not be reached: it takes no more requests until it answers its probe again."""
        self._suspect = True
        self._owner.replica_unavailable(self)
        self._changed.set()

    def request_ended(self) -> None:
        """One of its requests has ended, so that a drain may go on."""
        if self._departure is not None:
            self._changed.set()

    async def wait_ended(self) -> None:
        """Return when it is gone."""
        if self._living is not None:
            await asyncio.wait([self._living])

    async def _live(self, spawn: Spawn, origin: Origin, probe: Probe) -> None:
        try:
            process = await spawn()
        except ForkServerError as error:
            self._end(f"failed to start: {error}", failed=True)
            return
        except asyncio.CancelledError:
            if self._departure is None:
                raise
            self._end(self._departure.reason, failed=False)
            return
        process.exit_status.add_done_callback(lambda _: self._changed.set())
        self.life = replace(self.life, started_at=self._clock())
        try:
            while await self._become_ready(process, probe):
                if self.life.ready_at is None:
                    self.life = replace(self.life, ready_at=self._clock())
                self._owner.replica_ready(self)
                while not self._suspect and self._departure is None and not process.exit_status.done():
                    await self._wait_for_change()
            killed = await self._drain(process)
        finally:
            origin.close()
            process.kill()
        if self._departure is None:
            self._end(_describe_exit(process.exit_status.result()), failed=True)
        else:
            reason = f"{self._departure.reason}{', killed' if killed else ''}"
            self._end(reason, failed=self._departure.failed)

    async def _become_ready(self, process: Process, probe: Probe) -> bool:
        """Probe until it is ready. False where it ended, has to go, or took too long (then it has to go)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.manifest.progress_deadline_s
        while self._departure is None and not process.exit_status.done():
            if await probe():
                self._suspect = False
                return self._departure is None
            if loop.time() >= deadline:
                reason = f"not ready within {self.manifest.progress_deadline_s:g} s"
                kill_at = loop.time() + self.manifest.timeout_s
                self.leave(Departure(reason=reason, kill_at=kill_at, finish_requests=False, failed=True))
            await self._wait_for_change(_PROBE_EVERY_S)
        return False

    async def _drain(self, process: Process) -> bool:
        """See it out if it has to go: quiet time, requests, SIGTERM, SIGKILL. True where it had to be killed."""
        loop = asyncio.get_running_loop()
        terminated = False
        while self._departure is not None and not process.exit_status.done():
            departure, now = self._departure, loop.time()
            if now >= departure.kill_at:
                process.kill()
                await process.exit_status
                return True
            busy = departure.finish_requests and self.queue.num_requests > 0
            if not terminated and not busy and now >= departure.quiet_until:
                process.terminate()
                terminated = True
            next_at = departure.kill_at
            if now < departure.quiet_until < next_at:
                next_at = departure.quiet_until
            await self._wait_for_change(next_at - now)
        return False

    async def _wait_for_change(self, timeout_s: float | None = None) -> None:
        """Return when it has to go, has ended or has one request less, or after a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    def _end(self, reason: str, *, failed: bool) -> None:
        self.failed = failed
        self.queue.close()
        self.life = replace(self.life, ended_at=self._clock(), reason=reason)
        self._owner.replica_ended(self)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exited with code {status}"
    return f"killed by signal {-status} ({signal.Signals(-status).name})"
