"""A local stack for the length of a ``with`` block: a child process, ended with all of its own on the way out."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from controller.platforms.local.fork_server import end_with_parent

REPOSITORY = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


class StackFailed(Exception):
    """The stack did not start, or ended by itself. The message has the end of its log."""


@contextlib.contextmanager
def local_stack(state_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run ``rlhfless up`` on a state folder and yield the URL of its API.

    ``settings`` are environment variables for it. Raises ``StackFailed``.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    address, log = state_dir / "controller.json", state_dir / "up.log"
    environment = {
        **os.environ,
        "RLHFLESS_STATE_DIR": str(state_dir),
        "RLHFLESS_API_PORT": "0",
        "PYTHONPATH": str(REPOSITORY),
        **(settings or {}),
    }
    with log.open("wb") as output:
        # A session of its own: Ctrl-C in the terminal reaches this process, which then ends the stack in order. Where
        # this process is killed before it can, the kernel tells the stack to end.
        process = subprocess.Popen(
            [sys.executable, "-m", "controller.cli", "up"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(end_with_parent, signal.SIGTERM) if sys.platform == "linux" else None,
        )
    try:
        yield _wait_for_address(process, address, log)
    finally:
        _stop(process)


def _wait_for_address(process: subprocess.Popen[bytes], address: Path, log: Path) -> str:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise StackFailed(f"the local stack ended with status {process.returncode}:\n{_tail(log)}")
        with contextlib.suppress(FileNotFoundError):
            content = json.loads(address.read_text())
            if content["pid"] == process.pid:
                return str(content["url"])
        time.sleep(0.05)
    raise StackFailed(f"the local stack did not start within {START_TIMEOUT_S:.0f} s:\n{_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the stack; it ends its own processes, and they end by themselves if it cannot."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tail(log: Path, num_lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-num_lines:])
