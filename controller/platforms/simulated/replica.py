"""One replica of a simulated function: cold, ready, draining, ended; and the requests that run on it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from controller.platforms.base import FunctionUnreachable, PlatformReply, ReplicaLife
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function_spec import FunctionSpec, StageFunction
from shared.contracts.ids import InstanceId

LOST = PlatformReply(status=502, headers={}, body=b"the replica was lost")
STOPPED = PlatformReply(status=503, headers={}, body=b"the replica is ending")


class Replica:
    """A replica from its scheduling on. ``on_change`` is called when it becomes ready or free, and when it ends."""

    def __init__(
        self, instance: InstanceId, spec: FunctionSpec, revision: str, *, on_change: Callable[[], None]
    ) -> None:
        now = virtual_now()
        self._spec = spec
        self._on_change = on_change
        self._requests: set[asyncio.Task[PlatformReply]] = set()
        self._num_taken = 0
        self._answer_lost = True
        self.idle_since = now
        """When its last request ended, or when it became ready."""
        self.life = ReplicaLife(
            instance=instance,
            function=spec.name,
            stages=spec.stages,
            revision=revision,
            num_cpus=spec.num_cpus,
            num_gpus=spec.num_gpus,
            scheduled_at=now,
            started_at=now,
        )
        self._timer = asyncio.get_running_loop().call_later(spec.cold_start_s, self._become_ready)

    @property
    def instance(self) -> InstanceId:
        """Its name."""
        return self.life.instance

    @property
    def revision(self) -> str:
        """What it was started from."""
        return self.life.revision

    @property
    def started_at(self) -> float:
        """Unix time."""
        return self.life.started_at or self.life.scheduled_at

    @property
    def ready_at(self) -> float:
        """Unix time; meaningful while a request runs on it."""
        return self.life.ready_at or self.started_at

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.life.ended_at is None

    @property
    def is_active(self) -> bool:
        """Whether it takes requests, now or once it is ready."""
        return self.is_alive and self.life.draining_at is None

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests now, up to its concurrency."""
        return self.is_active and self.life.ready_at is not None

    @property
    def has_room(self) -> bool:
        """Whether it takes one more request now."""
        return self.is_ready and self._num_taken < self._spec.container_concurrency

    @property
    def num_in_flight(self) -> int:
        """Requests that it was given and has not answered."""
        return self._num_taken

    def take(self) -> None:
        """Reserve room for one request; ``serve`` or ``give_back`` follows."""
        self._num_taken += 1

    def give_back(self) -> None:
        """Free the room of one request."""
        self._num_taken -= 1
        if self._num_taken == 0:
            self.idle_since = virtual_now()
            if self.is_alive and not self.is_active:
                self._end_later()
        self._on_change()

    async def serve(self, function: StageFunction, path: str, body: bytes, headers: Mapping[str, str]) -> PlatformReply:
        """Run one request, for which room was taken. Raises ``FunctionUnreachable`` if it is killed silently."""
        request = asyncio.ensure_future(function(path, body, headers, self))
        self._requests.add(request)
        try:
            await asyncio.wait({request})
            if not self.is_alive:
                return self._lost()
            return STOPPED if request.cancelled() else request.result()
        finally:
            # The caller may have left before: then nobody wants the answer.
            request.cancel()
            self._requests.discard(request)
            self.give_back()

    def drain(self, reason: str) -> None:
        """SIGTERM: take no more requests, answer the running ones, end ``drain_s`` after the last."""
        if not self.is_active:
            return
        self.life = replace(self.life, draining_at=virtual_now(), reason=reason)
        self._timer.cancel()
        if self._num_taken == 0:
            self._end_later()

    def stop(self, reason: str) -> None:
        """End without answering the running requests."""
        self.drain(reason)
        for request in list(self._requests):
            request.cancel()

    def kill(self, reason: str, *, answered: bool) -> None:
        """SIGKILL: gone at once. Callers get a 502 from the platform, or no answer at all."""
        self._answer_lost = answered
        self._end(reason)
        for request in list(self._requests):
            request.cancel()

    def _lost(self) -> PlatformReply:
        if not self._answer_lost:
            raise FunctionUnreachable(f"{self.instance}: connection reset")
        return LOST

    def _become_ready(self) -> None:
        self.idle_since = virtual_now()
        self.life = replace(self.life, ready_at=self.idle_since)
        self._on_change()

    def _end_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._spec.drain_s, self._end, self.life.reason)

    def _end(self, reason: str) -> None:
        if not self.is_alive:
            return
        self._timer.cancel()
        self.life = replace(self.life, ended_at=virtual_now(), reason=reason)
        self._on_change()
