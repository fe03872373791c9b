"""A Redis server that no controller started, as on a cluster."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from controller.platforms.local.redis_server import ENDS_WITH_PARENT, find_server, free_port

PASSWORD = "an outside password"


class OutsideRedis:
    """A server that can be taken away and brought back, with what it held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables that name it."""
        return {"REDIS_URL": f"redis://127.0.0.1:{self._port}/0", "REDIS_PASSWORD": PASSWORD}

    def start(self) -> None:
        """Run it."""
        server = [str(find_server()), "--port", str(self._port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
        server += ["--dir", str(self._folder), "--appendonly", "yes", "--save", ""]
        starter = [sys.executable, "-I", "-S", "-c", ENDS_WITH_PARENT, str(os.getpid())]
        self._process = subprocess.Popen([*starter, *server], stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it as a lack of memory would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def outside_redis(folder: Path) -> Iterator[OutsideRedis]:
    """A running server."""
    folder.mkdir()
    server = OutsideRedis(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
