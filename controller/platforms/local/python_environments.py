"""The Python environments that functions run in: one warm fork server each, started again when it has died."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.platforms.local.fork_client import ForkedProcess, ForkServerError, ForkServerProcess


class PythonEnvironments:
    """Fork servers by the name of their environment."""

    def __init__(
        self,
        interpreters: Mapping[str, str],
        *,
        preload: Sequence[str],
        env: Mapping[str, str],
        log_dir: Path,
    ) -> None:
        self._interpreters = interpreters
        self._preload = preload
        self._env = env
        self._log_dir = log_dir
        self._servers: dict[str, asyncio.Task[ForkServerProcess]] = {}
        self._closed = False

    async def warm(self, name: str) -> None:
        """Have the environment's server running. Raises ``ForkServerError``."""
        await self._server(name)

    async def spawn(
        self, environment: str, replica: str, *, argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> ForkedProcess:
        """Fork a replica in an environment. Raises ``ForkServerError``."""
        server = await self._server(environment)
        return await server.spawn(replica, argv=argv, env=env, log=log)

    async def close(self) -> None:
        """End all servers and whatever still runs under them."""
        self._closed = True
        for starting in self._servers.values():
            await _close(starting)

    async def _server(self, name: str) -> ForkServerProcess:
        if self._closed:
            raise ForkServerError("the platform stops")
        current = self._servers.get(name)
        if current is None or _has_ended(current):
            current = self._servers[name] = asyncio.create_task(self._start(name, current))
        # Whoever waits may give up; the server is everybody's.
        return await asyncio.shield(current)

    async def _start(self, name: str, ended: asyncio.Task[ForkServerProcess] | None) -> ForkServerProcess:
        if ended is not None:
            await _close(ended)
        log = self._log_dir / f"fork-server{f'-{name}' if name else ''}.log"
        return await ForkServerProcess.start(self._interpreters[name], preload=self._preload, env=self._env, log=log)


def _has_ended(server: asyncio.Task[ForkServerProcess]) -> bool:
    return server.done() and (server.exception() is not None or not server.result().alive)


async def _close(server: asyncio.Task[ForkServerProcess]) -> None:
    await asyncio.wait([server])
    if server.exception() is None:
        await server.result().close()
