"""A whole stack as a user starts it: one command, everything else is its children."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.local_stack import REPOSITORY, local_stack
from tests.e2e.api import Api
from tests.e2e.processes import child_with, processes_of, replicas_of
from tests.e2e.waiting import wait_until
from tests.e2e.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running stack."""

    api: Api
    url: str
    state_dir: Path
    pid: int
    """The controller's process."""

    def processes(self) -> set[int]:
        """All its processes."""
        return processes_of(self.state_dir)

    def replicas(self, function: str = "") -> set[int]:
        """Processes of a function's replicas, or of all."""
        return replicas_of(self.state_dir, function)

    def redis(self) -> int | None:
        """The embedded Redis, if it runs."""
        return child_with(self.pid, "redis-server")

    def is_alive(self) -> bool:
        """Whether the controller runs."""
        return self.pid in self.processes()

    def token(self) -> str:
        """What the functions ask of their callers."""
        return (self.state_dir / "token").read_text().strip()

    def log(self) -> str:
        """What the controller wrote to its terminal."""
        return (self.state_dir / "up.log").read_text()

    def kill(self) -> None:
        """End the controller as a lack of memory would, and see all that it started end with it."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="what the controller started to end")


@contextlib.contextmanager
def running_stack(workspace: Workspace, state_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A stack on a state folder, which may have seen another before."""
    environment = {"RLHFLESS_ROOTS": f"{workspace.root}:{REPOSITORY}", "RLHFLESS_THREADS": "2", **(settings or {})}
    with local_stack(state_dir, environment) as url, contextlib.closing(Api(url)) as api:
        pid = int(json.loads((state_dir / "controller.json").read_text())["pid"])
        yield Stack(api=api, url=url, state_dir=state_dir, pid=pid)
