"""The API's server: its socket, its address for the command line, and how it ends."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from controller.settings import ControllerSettings, SettingsInvalid
from shared.service.ending import end_task

SHUTDOWN_S = 5
"""Time that open event streams have to end."""


class _Server(uvicorn.Server):
    """Leaves the process's signals to who runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_beside(driving: asyncio.Task[None], api: ASGIApp, listener: socket.socket) -> None:
    """Serve until cancelled, or until ``driving`` ends: an API that nobody works for is not to look well.

    Ends both. Raises what ``driving`` failed with.
    """
    config = uvicorn.Config(
        api,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
    try:
        await asyncio.wait({serving, driving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        failure = await end_task(driving)
        await serving
        if failure is not None:
            raise failure


def listen(host: str, port: int) -> socket.socket:
    """A socket for the API. Raises ``SettingsInvalid`` where the port is taken."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise SettingsInvalid(
            f"the API cannot listen on {host}:{port}: {error.strerror}. Set RLHFLESS_API_PORT to a free port, "
            "or to 0 for any"
        ) from error


def write_address(settings: ControllerSettings, url: str) -> None:
    """Leave the API's address where the command line looks for it."""
    token_file = str(settings.api_token_file) if settings.api_token_file else None
    partial = settings.address_file.with_suffix(".partial")
    partial.write_text(json.dumps({"url": url, "token_file": token_file, "pid": os.getpid()}))
    partial.rename(settings.address_file)
