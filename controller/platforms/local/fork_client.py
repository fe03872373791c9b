"""The controller's side of a fork server: starts it, asks it for replicas, learns of their ends."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20
_CLOSE_TIMEOUT_S = 5.0


class ForkServerError(Exception):
    """No replica could be forked: the server did not start, died or refused."""


class ForkedProcess:
    """One replica's process."""

    def __init__(self, server: "ForkServerProcess", name: str, pid: int) -> None:
        self._server = server
        self._name = name
        self.pid = pid
        self._exit_status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def exit_status(self) -> asyncio.Future[int]:
        """Exit code, or minus the signal's number."""
        return self._exit_status

    def terminate(self) -> None:
        """SIGTERM to the process, as a container's first process gets it."""
        self._server.signal(self._name, signal.SIGTERM, group=False)

    def kill(self) -> None:
        """SIGKILL to the process and all it has started."""
        self._server.signal(self._name, signal.SIGKILL, group=True)


class ForkServerProcess:
    """A running fork server. It ends with its control socket, and its replicas end with it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._starting: dict[str, asyncio.Future[ForkedProcess]] = {}
        self._running: dict[str, ForkedProcess] = {}
        self.failed_imports: Mapping[str, str] = {}
        """Modules that were to be imported and could not be, with the reason."""
        self._serves = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, python: str, *, preload: Sequence[str], env: Mapping[str, str], log: Path
    ) -> "ForkServerProcess":
        """Start a server on an interpreter. It answers as soon as its imports are done; requests wait until then.

        Raises ``ForkServerError`` where the interpreter cannot be run.
        """
        ours, theirs = socket.socketpair()
        arguments = ["-m", "controller.platforms.local.fork_server", "--control-fd", str(theirs.fileno())]
        for module in preload:
            arguments += ["--preload", module]
        try:
            with theirs, log.open("ab") as output:
                # A session of its own, so that a terminal's Ctrl-C reaches the controller alone.
                process = await asyncio.create_subprocess_exec(
                    python,
                    *arguments,
                    env=dict(env),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise ForkServerError(f"cannot run {python}: {error.strerror}") from error
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MAX_LINE_BYTES)
        return cls(process, reader, writer)

    @property
    def alive(self) -> bool:
        """Whether it still answers."""
        return not self._reading.done()

    async def spawn(self, name: str, *, argv: Sequence[str], env: Mapping[str, str], log: Path) -> ForkedProcess:
        """Fork a replica; ``name`` must be unique. Raises ``ForkServerError``."""
        if not self.alive:
            raise ForkServerError("the fork server has ended; its log says why")
        started: asyncio.Future[ForkedProcess] = asyncio.get_running_loop().create_future()
        self._starting[name] = started
        self._send({"spawn": name, "argv": list(argv), "env": dict(env), "log": str(log)})
        try:
            return await started
        except asyncio.CancelledError:
            # Forked at the very moment that nobody wanted it any more.
            if started.done() and not started.cancelled() and started.exception() is None:
                started.result().kill()
            raise

    def signal(self, name: str, number: int, *, group: bool) -> None:
        """Send a signal to a replica, if it still runs."""
        self._send({"signal": name, "number": int(number), "group": group})

    async def close(self) -> None:
        """End the server; what still runs under it is killed."""
        self._writer.close()
        if not self._serves and self._process.returncode is None:
            self._process.kill()  # it still imports: nothing runs under it, and it would not listen for a while
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def _send(self, message: Mapping[str, object]) -> None:
        if self.alive and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        """Hear what the server says until it ends; then everything under it has ended."""
        with contextlib.suppress(ConnectionError):
            while (line := await self._reader.readline()).endswith(b"\n"):
                self._hear(json.loads(line))
        self._writer.close()
        for started in self._starting.values():
            if not started.done():
                started.set_exception(ForkServerError("the fork server ended; its log says why"))
        self._starting.clear()
        for replica in self._running.values():
            # The replica dies with the server; what the replica has started does not.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(replica.pid, signal.SIGKILL)
            replica.exit_status.set_result(-signal.SIGKILL)
        self._running.clear()

    def _hear(self, message: dict[str, object]) -> None:
        match message:
            case {"preloaded": _, "failed": dict(failed), "num_threads": int(num_threads)}:
                self._serves = True
                self.failed_imports = failed
                if failed:
                    logger.info("fork server started without %s", failed)
                if num_threads > 1:
                    logger.warning("fork server has %d threads; forked replicas may hang", num_threads)
            case {"spawned": str(name), "pid": int(pid)}:
                process = self._running[name] = ForkedProcess(self, name, pid)
                started = self._starting.pop(name)
                if started.cancelled():
                    process.kill()
                else:
                    started.set_result(process)
            case {"refused": str(name), "why": str(why)}:
                started = self._starting.pop(name)
                if not started.cancelled():
                    started.set_exception(ForkServerError(why))
            case {"exited": str(name), "status": int(status)}:
                self._running.pop(name).exit_status.set_result(status)
