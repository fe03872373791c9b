"""A stack that cannot start says why in one line, ends with a status that scripts see, and leaves nothing running."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local_stack import REPOSITORY
from tests.e2e.processes import processes_of


def start(state_dir: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """``rlhfless up`` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "controller.cli", "up"],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "RLHFLESS_STATE_DIR": str(state_dir),
            "RLHFLESS_API_PORT": "0",
            **settings,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(ended: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why; the start's other output is warnings in JSON."""
    assert ended.returncode not in (0, -9)
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "rlhfless is up" not in ended.stdout
    [line] = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    return line


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_redis_that_does_not_answer(state_dir: Path) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{unheard.getsockname()[1]}/0"
        line = refusal(start(state_dir, REDIS_URL=url))
    assert line.startswith("error: Redis did not answer: check that it runs and that REDIS_URL is right")


def test_a_port_that_is_taken(state_dir: Path, taken_port: int) -> None:
    line = refusal(start(state_dir, RLHFLESS_API_PORT=str(taken_port)))
    assert f"cannot listen on 127.0.0.1:{taken_port}: Address already in use" in line
    assert "Set RLHFLESS_API_PORT to a free port" in line
    assert not processes_of(state_dir)


def test_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refusal(start(tmp_path / "file" / "state"))
    assert f"cannot keep state in {tmp_path}/file/state: Not a directory. Set RLHFLESS_STATE_DIR" in line


def test_a_folder_without_manifests(state_dir: Path, tmp_path: Path) -> None:
    line = refusal(start(state_dir, RLHFLESS_MANIFESTS=str(tmp_path)))
    assert f"{tmp_path}: *.yaml: there is no manifest in this folder" in line
    assert not processes_of(state_dir), "neither Redis nor a function is left"


def test_a_setting_that_is_no_number(state_dir: Path) -> None:
    line = refusal(start(state_dir, RLHFLESS_API_PORT="http"))
    assert line == "error: RLHFLESS_API_PORT='http' is not a number"
