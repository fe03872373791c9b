"""One simulated function: its queue, its replicas, and how many there are."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from controller.platforms.base import FunctionState, PlatformReply, ReplicaLife, RevisionState
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function_spec import FunctionSpec, StageFunction
from controller.platforms.simulated.replica import Replica
from controller.platforms.simulated.scaling import leaves_at, wanted_replicas
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

TURNED_AWAY = PlatformReply(status=503, headers={}, body=b"the function was released")
TIMED_OUT = PlatformReply(status=504, headers={}, body=b"request timeout")


@dataclass(frozen=True, slots=True)
class Hold:
    """A raised minimum, until a Unix time."""

    num_replicas: int
    until: float


class Function:
    """Queues requests, starts replicas for them and lets the idle ones go."""

    def __init__(self, spec: FunctionSpec) -> None:
        self._spec = spec
        self._revision = f"{spec.name}-00001"
        self._queue: deque[asyncio.Future[Replica | None]] = deque()
        self._replicas: list[Replica] = []
        self._holds: dict[Stage, Hold] = {}
        self._retired: set[str] = set()
        self._num_started = 0
        self._look: asyncio.TimerHandle | None = None
        self.reconcile()

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All replicas there ever were, in the order of their scheduling."""
        return tuple(self._replicas)

    def lives(self) -> list[ReplicaLife]:
        """Lives of all replicas there ever were."""
        return [replace(replica.life, num_in_flight=replica.num_in_flight) for replica in self._replicas]

    def state(self) -> FunctionState:
        """What it looks like now."""
        active = self._active()
        return FunctionState(
            name=self._spec.name,
            stages=self._spec.stages,
            url=f"simulated://{self._spec.name}",
            revision=self._revision,
            image="simulated",
            ready=True,
            reason="",
            num_replicas=len(active),
            num_ready=sum(replica.is_ready for replica in active),
            num_pending=0,
            num_in_flight=self._num_in_flight(),
            num_queued=len(self._queue),
            min_scale=max(self._spec.min_scale, self._num_held()),
            max_scale=self._spec.max_scale,
            revisions=(RevisionState(name=self._revision, percent=100, num_replicas=len(active)),),
        )

    async def answer(
        self, function: StageFunction, path: str, body: bytes, headers: Mapping[str, str]
    ) -> PlatformReply:
        """Wait for room on a replica, and run the request there. 504 if that takes longer than the function's limit."""
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                replica = await self._room()
                if replica is None:
                    return TURNED_AWAY
                return await replica.serve(function, path, body, headers)
        except TimeoutError:
            return TIMED_OUT

    def hold(self, stage: Stage, hold: Hold | None) -> None:
        """Raise the minimum for a stage, or withdraw what was raised."""
        held = self._holds.pop(stage, None)
        if hold is not None and hold.num_replicas > (held.num_replicas if held else 0):
            self._retired.clear()
        if hold is not None:
            self._holds[stage] = hold
        self.reconcile()

    def retire(self, instances: Iterable[InstanceId]) -> None:
        """Let these go before the others."""
        self._retired.update(instances)
        self.reconcile()

    def release(self) -> None:
        """Withdraw every hold, turn away who waits, and end all replicas."""
        self._holds.clear()
        for waiter in self._queue:
            if not waiter.done():
                waiter.set_result(None)
        self._queue.clear()
        for replica in self._replicas:
            replica.stop("released")
        self.reconcile()

    def reconcile(self) -> None:
        """Start replicas that are missing, give them requests, let go those that were idle for long enough."""
        now = virtual_now()
        active = self._active()
        wanted = wanted_replicas(
            self._spec, num_requests=self._num_in_flight() + len(self._queue), num_held=self._num_held()
        )
        for _ in range(len(active), wanted):
            self._start()
        self._dispatch()
        idle = [replica for replica in self._active() if replica.is_ready and replica.num_in_flight == 0]
        idle.sort(key=lambda replica: replica.instance not in self._retired)
        num_surplus = len(self._active()) - wanted
        for replica in [each for each in idle if leaves_at(self._spec, idle_since=each.idle_since) <= now]:
            if num_surplus > 0:
                num_surplus -= 1
                replica.drain("scaled down")
        self._look_again(now, idle)

    def _start(self) -> None:
        self._num_started += 1
        instance = InstanceId(f"{self._revision}-{self._num_started:04d}")
        self._replicas.append(Replica(instance, self._spec, self._revision, on_change=self.reconcile))

    def _dispatch(self) -> None:
        while self._queue:
            replica = next((replica for replica in self._replicas if replica.has_room), None)
            if replica is None:
                return
            waiter = self._queue.popleft()
            if not waiter.done():
                replica.take()
                waiter.set_result(replica)

    async def _room(self) -> Replica | None:
        """A replica with room taken for one request; ``None`` if the function was released meanwhile."""
        waiter: asyncio.Future[Replica | None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            self.reconcile()
            return await waiter
        except asyncio.CancelledError:
            taken = waiter.result() if waiter.done() and not waiter.cancelled() else None
            if taken is not None:
                taken.give_back()
            else:
                self._queue = deque(each for each in self._queue if each is not waiter)
            raise

    def _look_again(self, now: float, idle: list[Replica]) -> None:
        """Wake up when the next idle replica may leave, or the next hold ends."""
        if self._look is not None:
            self._look.cancel()
        times = [leaves_at(self._spec, idle_since=replica.idle_since) for replica in idle]
        times += [hold.until for hold in self._holds.values()]
        later = [time for time in times if time > now]
        self._look = asyncio.get_running_loop().call_later(min(later) - now, self.reconcile) if later else None

    def _active(self) -> list[Replica]:
        return [replica for replica in self._replicas if replica.is_active]

    def _num_in_flight(self) -> int:
        return sum(replica.num_in_flight for replica in self._replicas if replica.is_active)

    def _num_held(self) -> int:
        now = virtual_now()
        return max((hold.num_replicas for hold in self._holds.values() if hold.until > now), default=0)
