"""Starts a replica where the machine has room for it: a reservation, a port, a log file, a forked process."""

from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from controller.platforms.local.capacity import Machine
from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.ports import NoFreePort, PortPool
from controller.platforms.local.python_environments import PythonEnvironments
from controller.platforms.local.readiness import is_ready
from controller.platforms.local.replica import Replica
from controller.platforms.local.replica_environment import replica_environment
from shared.contracts.ids import InstanceId

_LOOPBACK = "127.0.0.1"


class Launcher:
    """The machine's side of all functions: a ``Starter`` of real processes."""

    def __init__(
        self, machine: Machine, environments: PythonEnvironments, *, log_dir: Path, num_ended_logs: int
    ) -> None:
        self._machine = machine
        self._environments = environments
        self._ports = PortPool()
        self._ports_of: dict[InstanceId, int] = {}
        self._log_dir = log_dir
        self._num_ended_logs = num_ended_logs
        self._ended_logs: deque[Path] = deque()

    def try_start(self, replica: Replica, env: Mapping[str, str]) -> str | None:
        """Start a pending replica. None, or why it has to stay pending."""
        manifest = replica.manifest
        lacking = self._machine.reserve(replica.instance, manifest.resources)
        if lacking is not None:
            return lacking
        try:
            port = self._ports.take()
        except NoFreePort as error:
            self._machine.free(replica.instance)
            return f"unschedulable: {error}"
        self._ports_of[replica.instance] = port
        spawn = partial(
            self._environments.spawn,
            manifest.python_environment,
            replica.instance,
            argv=manifest.command,
            env=replica_environment(
                {**env, **self._machine.environment(replica.instance)},
                service=manifest.name,
                revision=replica.life.revision,
                instance=replica.instance,
                port=port,
            ),
            log=self.log_path(replica.instance),
        )
        origin = HttpOrigin(_LOOPBACK, port)
        replica.start(spawn, origin, partial(is_ready, origin, manifest.readiness_path))
        return None

    def ended(self, replica: Replica) -> None:
        """Give back what an ended replica had, and delete the oldest logs above the number to keep."""
        self._machine.free(replica.instance)
        port = self._ports_of.pop(replica.instance, None)
        if port is not None:
            self._ports.give_back(port)
        if replica.life.started_at is None:
            return
        self._ended_logs.append(self.log_path(replica.instance))
        while len(self._ended_logs) > self._num_ended_logs:
            self._ended_logs.popleft().unlink(missing_ok=True)

    def log_path(self, instance: InstanceId) -> Path:
        """File of a replica's output."""
        return self._log_dir / f"{instance}.log"
