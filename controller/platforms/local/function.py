"""One function on this machine: its queue, its replicas and how many there are."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controller.platforms.base import FunctionState, ReplicaLife
from controller.platforms.local.activator import Activator
from controller.platforms.local.autoscaler import AutoscalerState, Observation, decide
from controller.platforms.local.concurrency import BucketWindow, ConcurrencyReporter
from controller.platforms.local.crash_backoff import CrashBackoff
from controller.platforms.local.http_stream import BrokenStream, HttpStream
from controller.platforms.local.launcher import Launcher
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.replica import Departure, Replica, ReplicaState
from controller.platforms.local.revision import Revision
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

logger = logging.getLogger(__name__)

_ACTIVE = (ReplicaState.PENDING, ReplicaState.STARTED, ReplicaState.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A raised minimum."""

    num_replicas: int
    until: float
    """Loop time."""


class Function:
    """Admits requests, follows the autoscaler, owns the replicas. All times are the loop's."""

    def __init__(
        self,
        manifest: FunctionManifest,
        env: Mapping[str, str],
        launcher: Launcher,
        *,
        queue_limit: int,
        drain_quiet_s: float,
        on_ended: Callable[[ReplicaLife], None],
    ) -> None:
        self._revision = Revision(manifest=manifest)
        self._env = env
        self._launcher = launcher
        self._drain_quiet_s = drain_quiet_s
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._activator: Activator[Replica] = Activator(
            container_concurrency=manifest.container_concurrency, queue_limit=queue_limit
        )
        self._replicas: dict[InstanceId, Replica] = {}
        self._holds: dict[Stage, Hold] = {}
        self._backoff = CrashBackoff()
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False
        self._decision = AutoscalerState()
        self._forget_load()

    @property
    def manifest(self) -> FunctionManifest:
        """The manifest that new replicas follow."""
        return self._revision.manifest

    @property
    def timeout_s(self) -> float:
        """Longest time of a whole request."""
        return self.manifest.timeout_s

    @property
    def response_start_timeout_s(self) -> float:
        """Longest time to the first byte of an answer; 0: no limit of its own."""
        return self.manifest.response_start_timeout_s

    def state(self, url: str) -> FunctionState:
        """What it looks like now."""
        now = self._loop.time()
        states = [replica.state for replica in self._active()]
        waiting = self._backoff.waiting(now)
        return FunctionState(
            name=self.manifest.name,
            stages=self.manifest.stages,
            url=url,
            revision=self._revision.name,
            image=self.manifest.image,
            ready=self._backoff.num_failures == 0,
            reason=waiting or self._backoff.reason,
            num_replicas=len(states),
            num_ready=states.count(ReplicaState.READY),
            num_pending=states.count(ReplicaState.PENDING),
            num_in_flight=self._activator.num_in_flight,
            num_queued=self._activator.num_queued,
            min_scale=max(self.manifest.scaling.min_scale, self._held(now)),
            max_scale=self.manifest.scaling.max_scale,
        )

    def lives(self) -> Iterable[ReplicaLife]:
        """Lives of the replicas that have not ended."""
        return [replica.life for replica in self._replicas.values()]

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[HttpStream]:
        """Wait for a slot on a replica and hold it. Raises ``QueueFull`` or ``TurnedAway``."""
        reporter = self._reporter
        first_report = reporter.request_in(self._loop.time())
        try:
            if first_report is not None or self._decision.desired == 0:
                self._record(first_report or 1.0)
            async with self._slot() as (replica, stream):
                try:
                    yield stream
                except BrokenStream as error:
                    if error.stream is stream:
                        replica.suspect()
                    raise
                finally:
                    replica.origin.give_back(stream)
        finally:
            reporter.request_out(self._loop.time())

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[tuple[Replica, HttpStream]]:
        """A slot and a connection. A replica that cannot be reached has seen no request, so another gets it."""
        while True:
            replica = await self._activator.acquire()
            try:
                try:
                    stream = await replica.origin.connect()
                except OSError:
                    replica.suspect()
                    continue
                yield replica, stream
                return
            finally:
                self._activator.release(replica)
                replica.request_ended()

    def hold(self, stage: Stage, num_replicas: int, *, until: float) -> None:
        """Raise the minimum for a stage until a time; 0 withdraws it."""
        if num_replicas > 0:
            self._holds[stage] = Hold(num_replicas=num_replicas, until=until)
        else:
            self._holds.pop(stage, None)
        self.reconcile()

    def release(self, *, grace_s: float) -> None:
        """Withdraw every hold, forget the load and end all replicas within ``grace_s``; who waits gets 503."""
        self._holds.clear()
        self._forget_load()
        self._activator.turn_away()
        self._end_all("released", grace_s)

    async def stop(self, *, grace_s: float) -> None:
        """End all replicas and start no more."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self._activator.turn_away()
        self._end_all("platform stopped", grace_s)
        await asyncio.gather(*(replica.wait_ended() for replica in list(self._replicas.values())))

    def apply(self, manifest: FunctionManifest, env: Mapping[str, str]) -> None:
        """Follow a manifest that was read again: with another template, a new revision replaces the replicas."""
        revision = self._revision.next(manifest)
        if revision is self._revision:
            return
        self._revision, self._env = revision, env
        self._activator.container_concurrency = manifest.container_concurrency
        self._backoff = CrashBackoff()
        self._stable_window.resize(manifest.scaling.window_s)
        self._panic_window.resize(manifest.scaling.panic_window_s)
        for replica in self._active():
            self._let_go(replica, "replaced by another revision")
        self.reconcile()

    def report(self) -> None:
        """Once a second: record the concurrency since the last time."""
        value = self._reporter.report(self._loop.time())
        if value is not None:
            self._record(value)

    def tick(self) -> None:
        """Decide how many replicas there should be, and see to it."""
        now = self._loop.time()
        num_ready = sum(replica.state is ReplicaState.READY for replica in self._replicas.values())
        seen = Observation(
            now=now,
            num_ready=num_ready,
            stable_concurrency=self._stable_window.average(now),
            panic_concurrency=self._panic_window.average(now),
        )
        self._decision = decide(self.manifest.scaling, self._decision, seen)
        self.reconcile()

    def reconcile(self) -> None:
        """Start or let go replicas until as many are active as decided, within the bounds."""
        if self._stopped:
            return
        wanted = self.manifest.scaling.bounded(self._decision.desired, raised_minimum=self._held(self._loop.time()))
        active = self._active()
        for _ in range(len(active), wanted):
            instance = InstanceId(f"{self._revision.name}-{secrets.token_hex(4)}")
            self._replicas[instance] = Replica(instance, self.manifest, self._revision.name, self)
        by_worth = sorted(active, key=self._worth)
        for replica in by_worth[: max(0, len(active) - wanted)]:
            self._let_go(replica, "scaled down")
        self._start_pending()

    def replica_ready(self, replica: Replica) -> None:
        """Give it requests."""
        self._backoff = CrashBackoff()
        self._activator.add(replica)

    def replica_unavailable(self, replica: Replica) -> None:
        """Give it no requests."""
        self._activator.remove(replica)

    def replica_ended(self, replica: Replica) -> None:
        """Take note; what it leaves undone is started again by the next ``reconcile``."""
        self._activator.remove(replica)
        self._launcher.ended(replica)
        self._replicas.pop(replica.instance, None)
        if replica.failed:
            log = self._launcher.log_path(replica.instance)
            logger.warning(
                "replica %s of %s: %s; see %s", replica.instance, self.manifest.name, replica.life.reason, log
            )
            if replica.life.ready_at is None:
                self._backoff = self._backoff.after_failure(self._loop.time(), f"{replica.life.reason}; see {log}")
        self._on_ended(replica.life)

    def num_in_flight(self, replica: Replica) -> int:
        """Requests that one replica works on."""
        return self._activator.in_flight(replica)

    def _record(self, concurrency: float) -> None:
        now = self._loop.time()
        self._stable_window.record(now, concurrency)
        self._panic_window.record(now, concurrency)
        if concurrency > 0 and self._decision.desired == 0:
            self.tick()

    def _forget_load(self) -> None:
        """Begin to count anew: the requests of now belong to replicas that go."""
        scaling = self.manifest.scaling
        self._reporter = ConcurrencyReporter()
        self._stable_window = BucketWindow(scaling.window_s)
        self._panic_window = BucketWindow(scaling.panic_window_s)
        self._decision = AutoscalerState(initialized=scaling.initial_scale == 0)

    def _held(self, now: float) -> int:
        self._holds = {stage: hold for stage, hold in self._holds.items() if hold.until > now}
        return max((hold.num_replicas for hold in self._holds.values()), default=0)

    def _active(self) -> list[Replica]:
        return [replica for replica in self._replicas.values() if replica.state in _ACTIVE]

    def _worth(self, replica: Replica) -> tuple[int, int, float]:
        """Who is let go first: the idle before the busy, the less far before the further, the newest first."""
        return (self._activator.in_flight(replica), _ACTIVE.index(replica.state), -replica.life.scheduled_at)

    def _start_pending(self) -> None:
        now = self._loop.time()
        backoff_reason = self._backoff.waiting(now)
        if backoff_reason is not None and self._retry is None:
            self._retry = self._loop.call_at(self._backoff.not_before, self._retry_pending)
        for replica in self._active():
            if replica.state is ReplicaState.PENDING:
                reason = backoff_reason or self._launcher.try_start(replica, self._env)
                if reason is not None:
                    replica.stay_pending(reason)

    def _retry_pending(self) -> None:
        self._retry = None
        self.reconcile()

    def _let_go(self, replica: Replica, reason: str) -> None:
        """The gentle way: after the quiet time and its last request, within the request timeout."""
        now = self._loop.time()
        replica.leave(
            Departure(
                reason=reason,
                kill_at=now + replica.manifest.timeout_s,
                finish_requests=True,
                quiet_until=now + self._drain_quiet_s,
            )
        )

    def _end_all(self, reason: str, grace_s: float) -> None:
        departure = Departure(reason=reason, kill_at=self._loop.time() + grace_s, finish_requests=False)
        for replica in list(self._replicas.values()):
            replica.leave(departure)
