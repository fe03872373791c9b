"""Pods in virtual time: they take their time to start and to end, and serve nothing. A ``Starter`` of replicas."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from controller.platforms.local.capacity import Machine
from controller.platforms.local.http_stream import HttpStream
from controller.platforms.local.replica import Process, Replica
from shared.contracts.ids import InstanceId

BOUNDLESS = 10**9
_PROBE_WAITS_S = 0.5


class Pod:
    """One pod's process."""

    def __init__(self, stop_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_s = stop_s
        self.exit_status: asyncio.Future[int] = self._loop.create_future()

    def terminate(self) -> None:
        """It ends a while later."""
        self._loop.call_later(self._stop_s, self.end, 0)

    def kill(self) -> None:
        """It ends at once."""
        self.end(-9)

    def end(self, status: int) -> None:
        """It has ended."""
        if not self.exit_status.done():
            self.exit_status.set_result(status)


class PodAddress:
    """Where a pod listens: a connection to it is nothing but the fact that it can be made."""

    def __init__(self) -> None:
        self.pod: Pod | None = None

    async def connect(self) -> HttpStream:
        """Raises ``OSError`` where the pod is not there."""
        if self.pod is None or self.pod.exit_status.done():
            raise ConnectionRefusedError
        return cast(HttpStream, self)

    def give_back(self, stream: HttpStream) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""


class PacedPods:
    """Starts pods on a machine."""

    def __init__(
        self,
        *,
        start_s: float,
        stop_s: float = 0.0,
        machine: Machine | None = None,
        becomes_ready: Callable[[str], bool] = lambda revision: True,
    ) -> None:
        """``start_s``: from a pod's creation until it is ready; ``stop_s``: from SIGTERM until it is gone.

        ``becomes_ready``: whether pods of a revision ever do.
        """
        self._start_s = start_s
        self._stop_s = stop_s
        self._machine = machine or Machine(num_cpus=BOUNDLESS, memory_bytes=BOUNDLESS, num_gpus=BOUNDLESS)
        self._becomes_ready = becomes_ready
        self.pods: dict[InstanceId, Pod] = {}

    def try_start(self, replica: Replica, env: Mapping[str, str]) -> str | None:
        """See ``Starter``."""
        lacking = self._machine.reserve(replica.instance, replica.manifest.resources)
        if lacking is not None:
            return lacking
        loop, address = asyncio.get_running_loop(), PodAddress()
        ready_at = loop.time() + self._start_s

        async def spawn() -> Process:
            address.pod = self.pods[replica.instance] = Pod(self._stop_s)
            return address.pod

        async def probe() -> bool:
            # As a real probe, it waits a little for an answer: far fewer events than one that asks all the time.
            await asyncio.sleep(min(_PROBE_WAITS_S, max(0.0, ready_at - loop.time())))
            return loop.time() >= ready_at and self._becomes_ready(replica.life.revision)

        replica.start(spawn, address, probe)
        return None

    def ended(self, replica: Replica) -> None:
        """See ``Starter``."""
        self._machine.free(replica.instance)
        self.pods.pop(replica.instance, None)

    def log_path(self, instance: InstanceId) -> Path:
        """There is no such file."""
        return Path(f"{instance}.log")
