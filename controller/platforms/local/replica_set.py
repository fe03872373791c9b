"""The replicas of one revision: as many as are asked for, started where there is room and let go in their order."""

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from controller.platforms.base import ReplicaLife
from controller.platforms.local.crash_backoff import CrashBackoff
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.place import Place
from controller.platforms.local.replica import Departure, Replica, ReplicaState
from controller.platforms.local.victims import FINISHED_COST, choose_victims
from shared.contracts.ids import InstanceId

logger = logging.getLogger(__name__)

_ACTIVE = (ReplicaState.PENDING, ReplicaState.STARTED, ReplicaState.READY)


class ReplicaSetOwner(Protocol):
    """Who is told when replicas come and go."""

    def replica_ready(self, replica: Replica) -> None:
        """It takes requests from now on."""
        ...

    def replica_unavailable(self, replica: Replica) -> None:
        """It takes no more requests."""
        ...

    def replica_ended(self, replica: Replica) -> None:
        """It is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What the replicas of one revision are made from."""

    revision: str
    manifest: FunctionManifest
    env: Mapping[str, str]


class ReplicaSet:
    """Owns the replicas."""

    def __init__(self, template: Template, owner: ReplicaSetOwner, place: Place) -> None:
        self._template = template
        self._owner = owner
        self._place = place
        self._starter = place.starter
        self._loop = place.loop
        self._replicas: dict[InstanceId, Replica] = {}
        self._num_wanted = 0
        self._backoff = CrashBackoff()
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def all(self) -> Iterable[Replica]:
        """Those that have not ended."""
        return self._replicas.values()

    @property
    def active(self) -> list[Replica]:
        """Those that work or will, in the order of their scheduling."""
        return [replica for replica in self._replicas.values() if replica.state in _ACTIVE]

    @property
    def ready(self) -> list[Replica]:
        """Those that take requests now."""
        return [replica for replica in self._replicas.values() if replica.is_ready]

    @property
    def failure(self) -> str:
        """Why its replicas cannot start; empty while they can."""
        return self._backoff.waiting(self._loop.time()) or self._backoff.reason

    def lives(self) -> list[ReplicaLife]:
        """Lives of those that have not ended."""
        return [replace(replica.life, num_in_flight=replica.queue.num_running) for replica in self.all]

    def scale_to(self, number: int) -> None:
        """Have so many active ones."""
        self._num_wanted = number
        self.reconcile()

    def reconcile(self) -> None:
        """Replace what has ended, let go what is too many, start what finds room."""
        if self._stopped:
            return
        active = self.active
        for _ in range(len(active), self._num_wanted):
            instance = InstanceId(f"{self._template.revision}-{secrets.token_hex(4)}")
            manifest, revision = self._template.manifest, self._template.revision
            self._replicas[instance] = Replica(instance, manifest, revision, self, self._place.clock)
        victims = choose_victims([replica.candidate for replica in active], len(active) - self._num_wanted)
        for instance in victims:
            self._let_go(self._replicas[instance])
        self._start_pending()

    def finish(self, instances: Iterable[InstanceId]) -> None:
        """These have no more to do: a scale-down takes them before the others."""
        for instance in instances:
            if instance in self._replicas:
                self._replicas[instance].deletion_cost = FINISHED_COST

    def unfinish(self) -> None:
        """All have something to do again."""
        for replica in self._replicas.values():
            replica.deletion_cost = 0

    def end_all(self, reason: str, *, grace_s: float) -> None:
        """End all within ``grace_s``, also those that work."""
        self._num_wanted = 0
        departure = Departure(reason=reason, kill_at=self._loop.time() + grace_s, finish_requests=False)
        for replica in list(self._replicas.values()):
            replica.queue.turn_away()
            replica.leave(departure)

    async def stop(self, reason: str, *, grace_s: float) -> None:
        """End all and start no more."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self.end_all(reason, grace_s=grace_s)
        await asyncio.gather(*(replica.wait_ended() for replica in list(self._replicas.values())))

    def replica_ready(self, replica: Replica) -> None:
        """See ``ReplicaOwner``."""
        self._backoff = CrashBackoff()
        self._owner.replica_ready(replica)

    def replica_unavailable(self, replica: Replica) -> None:
        """See ``ReplicaOwner``."""
        self._owner.replica_unavailable(replica)

    def replica_ended(self, replica: Replica) -> None:
        """Take note; what it leaves undone is started again by the next ``reconcile``."""
        self._starter.ended(replica)
        self._replicas.pop(replica.instance, None)
        if replica.failed:
            log, name = self._starter.log_path(replica.instance), self._template.manifest.name
            logger.warning("replica %s of %s: %s; see %s", replica.instance, name, replica.life.reason, log)
            if replica.life.ready_at is None:
                self._backoff = self._backoff.after_failure(self._loop.time(), f"{replica.life.reason}; see {log}")
        self._owner.replica_ended(replica)

    def _start_pending(self) -> None:
        backoff_reason = self._backoff.waiting(self._loop.time())
        if backoff_reason is not None and self._retry is None:
            self._retry = self._loop.call_at(self._backoff.not_before, self._retry_pending)
        for replica in self.active:
            if replica.state is ReplicaState.PENDING:
                reason = backoff_reason or self._starter.try_start(replica, self._template.env)
                if reason is not None:
                    replica.stay_pending(reason)

    def _retry_pending(self) -> None:
        self._retry = None
        self.reconcile()

    def _let_go(self, replica: Replica) -> None:
        """The gentle way: after the quiet time and its last request, within the request timeout."""
        now = self._loop.time()
        replica.leave(
            Departure(
                reason="scaled down",
                kill_at=now + replica.manifest.timeout_s,
                finish_requests=True,
                quiet_until=now + self._place.drain_quiet_s,
            )
        )
