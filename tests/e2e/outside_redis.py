"""A Redis server that no controller started, as on a cluster."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from controller.platforms.local.redis_server import find_server, free_port


@contextlib.contextmanager
def outside_redis(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server; yields the settings that name it."""
    port, password = free_port(), "an outside password"
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", password, "--dir", str(folder)]
    server = subprocess.Popen(
        [str(find_server()), *arguments, "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL
    )
    try:
        yield {"REDIS_URL": f"redis://127.0.0.1:{port}/0", "REDIS_PASSWORD": password}
    finally:
        server.kill()
        server.wait()
