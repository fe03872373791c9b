"""A Redis server that no controller started, as on a cluster."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from controller.platforms.local.redis_server import find_server, free_port

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
        arguments = ["--port", str(self._port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
        arguments += ["--dir", str(self._folder), "--appendonly", "yes", "--save", ""]
        self._process = subprocess.Popen([str(find_server()), *arguments], stdout=subprocess.DEVNULL)

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
