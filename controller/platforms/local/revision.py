"""One revision of a function: its queue, its load, its autoscaler and its replicas."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from controller.platforms.base import ReplicaLife
from controller.platforms.local.activator import Activator
from controller.platforms.local.autoscaler import AutoscalerState, Observation, decide, started
from controller.platforms.local.http_stream import BrokenStream, HttpStream
from controller.platforms.local.load_balancing import least_requests
from controller.platforms.local.load_meter import LoadMeter
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.place import Place
from controller.platforms.local.pod_autoscaler import Surroundings, at_rest, first_scale, rescale
from controller.platforms.local.replica import Replica
from controller.platforms.local.replica_queue import ReplicaLost
from controller.platforms.local.replica_set import ReplicaSet, Template
from controller.platforms.local.scaling_annotations import edit_scaling


class Revision:
    """Admits requests, follows the autoscaler, owns the replicas. A ``Routed`` of the proxy. All times are the loop's.

    ``on_ready`` is called once, when the first scale has been reached; ``on_ended`` for every replica that has ended.
    """

    def __init__(
        self,
        template: Template,
        place: Place,
        *,
        on_ready: Callable[[], None],
        on_ended: Callable[[ReplicaLife], None],
    ) -> None:
        self._loop = place.loop
        now = self._loop.time()
        self._template = template
        self._place = place
        self._on_ready = on_ready
        self._on_ended = on_ended
        self.scaling = template.manifest.scaling
        """What the template's annotations say, and the revision's own where it was edited."""
        self._reachable = True
        self._raised_minimum = 0
        self._activator: Activator[Replica] = Activator(
            container_concurrency=self.scaling.container_concurrency,
            queue_limit=place.queue_limit,
            random=place.random,
        )
        self.replicas = ReplicaSet(template, self, place)
        self._meter = LoadMeter(self.scaling, now)
        self._decision = started(self.scaling, now=now, num_ready=0)
        if self.scaling.initial_scale == 0:
            # This autoscaler has watched the revision from its first moment: there is nothing that it does not know.
            self._decision = AutoscalerState(desired=0, excess_burst_capacity=self._decision.excess_burst_capacity)
        self._scale = first_scale(self.scaling, now)
        self._look: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """``rollout-00001``"""
        return self._template.revision

    @property
    def manifest(self) -> FunctionManifest:
        """What its replicas follow."""
        return self._template.manifest

    @property
    def timeout_s(self) -> float:
        """Longest time of a whole request."""
        return self.manifest.timeout_s

    @property
    def response_start_timeout_s(self) -> float:
        """Longest time to the first byte of an answer; 0: no limit of its own."""
        return self.manifest.response_start_timeout_s

    @property
    def idle_timeout_s(self) -> float:
        """Longest time without a byte of the answer; 0: no limit."""
        return self.manifest.idle_timeout_s

    @property
    def is_ready(self) -> bool:
        """Whether its first scale has been reached once: it may get traffic."""
        return self._scale.initialized

    @property
    def activator_in_path(self) -> bool:
        """Whether requests go through the central queue now."""
        return self._scale.activator_since is not None or not self.replicas.ready

    @property
    def num_queued(self) -> int:
        """Requests that wait, in the central queue or for one replica."""
        return self._activator.num_queued + sum(replica.queue.num_waiting for replica in self.replicas.all)

    @property
    def num_in_flight(self) -> int:
        """Requests that replicas work on, draining ones included."""
        return sum(replica.queue.num_running for replica in self.replicas.all)

    @property
    def failure(self) -> str:
        """Why it cannot serve; empty while it can."""
        given_up = "given up: it did not become ready in time" if self._scale.timed_out else ""
        return self.replicas.failure or given_up

    @property
    def min_scale(self) -> int:
        """The minimum that holds now."""
        return max(self.scaling.min_scale, self._raised_minimum) if self._reachable else 0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[HttpStream]:
        """Wait for a slot on a replica and hold it, with a connection. Raises ``QueueFull`` or ``TurnedAway``."""
        meter, by_activator = self._meter, self.activator_in_path
        if meter.request_in(self._loop.time(), by_activator=by_activator):
            self._poke()
        try:
            async with self._connection(by_activator=by_activator) as (replica, stream):
                try:
                    yield stream
                except BrokenStream as error:
                    if error.stream is stream:
                        replica.suspect()
                    raise
                finally:
                    replica.origin.give_back(stream)
        finally:
            meter.request_out(self._loop.time(), by_activator=by_activator)

    def follow(self, *, reachable: bool, raised_minimum: int) -> None:
        """Take in whether requests can reach it, and the minimum that somebody holds."""
        if (reachable, raised_minimum) != (self._reachable, self._raised_minimum):
            self._reachable, self._raised_minimum = reachable, raised_minimum
            self.reconcile()

    def annotate(self, changes: Mapping[str, str | None]) -> None:
        """Edit its autoscaling annotations, given without their prefix; None takes one away.

        Raises ``AnnotationRefused``; then nothing has changed.
        """
        self.scaling = edit_scaling(self.scaling, changes)
        self._meter.follow(self.scaling)
        self.reconcile()

    def report(self) -> None:
        """Take down the load since the last time."""
        if self._meter.report(self._loop.time(), num_ready=len(self.replicas.ready)):
            self._poke()

    def tick(self) -> None:
        """Decide how many replicas there should be, and see to it."""
        now = self._loop.time()
        seen = Observation(
            now=now,
            num_ready=len(self.replicas.ready),
            load=self._meter.load(now),
            reachable=self._reachable,
        )
        self._decision = decide(self.scaling, self._decision, seen)
        self.reconcile()

    def reconcile(self) -> None:
        """Follow the decision within the bounds; have the replicas that it asks for."""
        now, was_ready = self._loop.time(), self.is_ready
        seen = Surroundings(
            now=now,
            desired=self._decision.desired,
            excess_burst_capacity=self._decision.excess_burst_capacity,
            num_ready=len(self.replicas.ready),
            reachable=self._reachable,
            raised_minimum=self._raised_minimum,
            progress_deadline_s=self.manifest.progress_deadline_s,
        )
        self._scale = rescale(self.scaling, self._place.pacing, self._scale, seen)
        self._look_again()
        self.replicas.scale_to(self._scale.num_replicas)
        if self.is_ready and not was_ready:
            self._on_ready()

    def release(self, reason: str, *, grace_s: float) -> None:
        """Forget the load, send away who waits and end all replicas within ``grace_s``."""
        now = self._loop.time()
        self._meter = LoadMeter(self.scaling, now)  # the requests of now belong to replicas that go
        self._decision = AutoscalerState(desired=0, excess_burst_capacity=self._decision.excess_burst_capacity)
        self._scale = at_rest(self._scale, now)
        self._look_again()
        self._activator.turn_away()
        self.replicas.end_all(reason, grace_s=grace_s)

    async def stop(self, reason: str, *, grace_s: float) -> None:
        """End all replicas and start no more."""
        self._activator.turn_away()
        await self.replicas.stop(reason, grace_s=grace_s)
        if self._look is not None:
            self._look.cancel()

    def replica_ready(self, replica: Replica) -> None:
        """Give it requests."""
        self._activator.add(replica)
        self.reconcile()

    def replica_unavailable(self, replica: Replica) -> None:
        """Give it no requests."""
        self._activator.remove(replica)

    def replica_ended(self, replica: Replica) -> None:
        """Give it no requests; say so."""
        self._activator.remove(replica)
        self._on_ended(replica.life)

    def _poke(self) -> None:
        """A load at zero is not left to wait for the next tick."""
        if self._decision.desired == 0:
            self.tick()

    def _look_again(self) -> None:
        if self._look is not None:
            self._look.cancel()
        at = self._scale.look_at
        self._look = None if at is None else self._loop.call_at(at, self.reconcile)

    @asynccontextmanager
    async def _connection(self, *, by_activator: bool) -> AsyncIterator[tuple[Replica, HttpStream]]:
        """A slot and a connection. A replica that cannot be reached has seen no request, so another gets it."""
        while True:
            try:
                async with self._slot(by_activator=by_activator) as replica:
                    try:
                        stream = await replica.origin.connect()
                    except OSError:
                        replica.suspect()
                        continue
                    yield replica, stream
                    return
            except ReplicaLost:
                continue

    @asynccontextmanager
    async def _slot(self, *, by_activator: bool) -> AsyncIterator[Replica]:
        """A place on a replica: the activator gives one that has room; else the least busy replica lets it wait."""
        ready = self.replicas.ready
        straight = None if by_activator else least_requests([replica.queue.num_requests for replica in ready])
        replica = await self._activator.acquire() if straight is None else ready[straight]
        try:
            await replica.queue.enter()
            try:
                yield replica
            finally:
                replica.queue.leave()
                replica.request_ended()
        finally:
            if straight is None:
                self._activator.release(replica)
