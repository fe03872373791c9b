"""A function as it is deployed: ``python -m functions.main`` in a process of its own, called over HTTP."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

REPOSITORY = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 90.0
CALL_TIMEOUT_S = 60.0


class FunctionProcess:
    """One replica. Its log is a file in its folder."""

    def __init__(self, process: subprocess.Popen[bytes], instance: str, url: str, token: str, log: Path) -> None:
        self.process = process
        self.instance = instance
        self.url = url
        self.token = token
        self.log = log
        self._headers = {"authorization": f"Bearer {token}"}

    async def call(
        self, body: Mapping[str, Any], *, stage: str, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """POST a call to the stage's route, with the token unless other headers are given."""
        async with self.client(headers) as client:
            return await client.post(f"/v1/{stage}", json=body)

    def client(self, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
        """A client of this replica."""
        return httpx.AsyncClient(
            base_url=self.url, headers=self._headers if headers is None else headers, timeout=CALL_TIMEOUT_S
        )

    def wait_until_ready(self) -> None:
        """Wait for ``/readyz``."""
        until = time.monotonic() + START_TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.instance} did not start:\n{self.log.read_text()}")

    def stop(self) -> None:
        """End the process, at once."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Ask the process to end, as the platform does."""
        self.process.send_signal(signal.SIGTERM)


class Functions:
    """Starts replicas before one store, with one token."""

    def __init__(self, folder: Path, *, redis_url: str, redis_password: str) -> None:
        self.folder = folder
        self.blobs = folder / "blobs"
        self.token = secrets.token_hex(16)
        (folder / "token").write_text(self.token)
        self._common = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "OMP_WAIT_POLICY": "PASSIVE",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "REDIS_URL": redis_url,
            "REDIS_PASSWORD": redis_password,
            "RLHFLESS_BLOB_URL": self.blobs.as_uri(),
            "RLHFLESS_TOKEN_FILE": str(folder / "token"),
            "RLHFLESS_ROOTS": f"{folder}:{REPOSITORY}",
            "RLHFLESS_BIND": "127.0.0.1",
        }
        self._num_started = 0

    @contextlib.contextmanager
    def running(
        self, stage: str, *, command: Sequence[str] = ("-m", "functions.main"), **environment: str
    ) -> Iterator[FunctionProcess]:
        """A replica that takes calls, for the length of a block. ``command``: what Python runs."""
        self._num_started += 1
        instance, port = f"{stage}-00001-{self._num_started}", free_port()
        own = {"RLHFLESS_STAGES": stage, "PORT": str(port), "HOSTNAME": instance, "K_REVISION": f"{stage}-00001"}
        log = self.folder / f"{instance}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=self._common | own | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        function = FunctionProcess(process, instance, f"http://127.0.0.1:{port}", self.token, log)
        try:
            function.wait_until_ready()
            yield function
        finally:
            function.stop()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as attempt:
        attempt.bind(("127.0.0.1", 0))
        port: int = attempt.getsockname()[1]
    return port
