"""When a process began, as the kernel knows it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from shared.observability import process_start
from shared.observability.process_start import process_started_at

CLOCK_ERROR_S = 2.0
"""The kernel tells its own start in whole seconds to those who ask another way."""


def test_it_is_what_others_say() -> None:
    assert process_started_at() == pytest.approx(psutil.Process().create_time(), abs=CLOCK_ERROR_S)
    assert process_started_at() == pytest.approx(process_started_at(), abs=0.05)


def test_imports_are_after_it() -> None:
    code = "import time; time.sleep(0.2); from shared.observability.process_start import process_started_at as at\n"
    began = time.time()
    told = subprocess.run(
        [sys.executable, "-c", f"{code}print(time.time() - at(), at())"],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(process_start.__file__).parents[2],
    ).stdout
    age_s, started_at = map(float, told.split())
    assert age_s >= 0.2
    assert began - 0.1 <= started_at <= time.time()


def test_a_forked_process_began_with_its_fork() -> None:
    reading, writing = os.pipe()
    began = time.time()
    child = os.fork()
    if child == 0:
        os.write(writing, str(process_started_at()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert float(os.read(reading, 100)) >= began - 0.1
    os.close(reading)
    os.close(writing)


def test_where_the_kernel_does_not_tell_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_start, "_STAT", tmp_path / "nothing")
    before = time.time()
    assert before <= process_started_at() <= time.time()
