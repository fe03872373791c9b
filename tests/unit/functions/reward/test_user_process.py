"""The child process: what it sees, what it may break, and that it always ends."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from functions.reward.user_process import UserCode, UserProcess, WorkerEnded, worker_environment
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout

Launch = Callable[..., Any]
JOB: dict[str, Any] = {
    "prompt": "966+358:",
    "messages": None,
    "data_source": "",
    "ground_truth": "1324",
    "columns": {},
    "completions": ["#1324"],
    "completion_ids": None,
    "attempts": 1,
}


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    @asynccontextmanager
    async def _launch(source: str, name: str = "compute_score", **options: Any) -> AsyncIterator[UserProcess]:
        path = tmp_path / "reward.py"
        path.write_text(source)
        environment = options.get("environment", worker_environment(os.environ))
        process = await UserProcess.start(UserCode(path, name, ""), environment, options.get("load_limit_s", 30.0))
        try:
            yield process
        finally:
            await process.close()

    return _launch


async def _ask(process: UserProcess, limit_s: float = 30.0, **changes: Any) -> dict[str, Any]:
    process.send_round([json.dumps(JOB | changes).encode() + b"\n"], concurrency=1, limit_s=limit_s)
    return await process.receive(limit_s)


def test_secrets_and_addresses_do_not_pass() -> None:
    secrets = {
        "REDIS_URL": "redis://:word@redis",
        "REDIS_PASSWORD": "word",
        "RLHFLESS_TOKEN": "t",
        "RLHFLESS_TOKEN_FILE": "/token",
        "AWS_SECRET_ACCESS_KEY": "k",
        "HF_TOKEN": "t",
        "HTTPS_PROXY": "http://user:word@proxy",
    }
    passed = worker_environment(secrets | {"PATH": "/bin", "PYTHONPATH": "/more"})
    assert passed.keys() == {"PATH", "PYTHONPATH"}
    assert passed["PYTHONPATH"].endswith(f"{os.pathsep}/more")


async def test_the_child_has_the_scrubbed_environment_alone(launch: Launch) -> None:
    source = "import os\ndef compute_score(solution_str):\n    raise ValueError(sorted(os.environ))"
    environment = worker_environment({"PATH": os.environ["PATH"], "REDIS_URL": "redis://"})
    async with launch(source, environment=environment) as process:
        answer = await _ask(process)
    assert "REDIS_URL" not in answer["cause"]
    assert "PYTHONPATH" in answer["cause"]


async def test_prints_and_reads_of_the_user_do_not_reach_the_protocol(
    launch: Launch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
import os, subprocess, sys
print("while loading")
def compute_score(solution_str, ground_truth):
    print('{"index": 0, "scores": []}')
    print("to the original", file=sys.__stdout__, flush=True)
    os.write(1, b"to the descriptor\\n")
    subprocess.run(["echo", "from a program"])
    assert sys.stdin.read() == ""
    return solution_str == "#1324"
"""
    async with launch(source) as process:
        for _ in range(2):
            assert await _ask(process) == {"index": 0, "scores": [{"reward": 1.0, "parts": {}, "answer": None}]}
    printed = capfd.readouterr()
    assert printed.out == ""
    for text in ("while loading", "to the original", "to the descriptor", "from a program"):
        assert text in printed.err


async def test_a_hang_is_ended_with_everything_it_started(launch: Launch) -> None:
    source = """
import signal, subprocess, sys, time
def compute_score(solution_str):
    if solution_str == "start":
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
"""
    async with launch(source) as process:
        started = await _ask(process, completions=["start"])
        family = [psutil.Process(process.pid), psutil.Process(int(started["scores"][0]["reward"]))]
        with pytest.raises(WorkerEnded, match=r"no answer within 0\.1 s") as ended:
            await _ask(process, limit_s=0.1)
        assert ended.value.timed_out
        assert not process.usable
        psutil.wait_procs(family, timeout=60)
        assert not any(map(_is_alive, family))


async def test_a_cancelled_wait_ends_the_process(launch: Launch) -> None:
    async with launch("import time\ndef compute_score(solution_str):\n    time.sleep(600)") as process:
        waiting = asyncio.create_task(_ask(process))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not process.usable


@pytest.mark.parametrize(
    ("action", "reason"),
    [("os._exit(3)", "exit code 3"), ("os.kill(os.getpid(), 11)", "signal SIGSEGV"), ("os.abort()", "SIGABRT")],
)
async def test_a_process_that_ends_by_itself_says_how(launch: Launch, action: str, reason: str) -> None:
    async with launch(f"import os\ndef compute_score(solution_str):\n    {action}") as process:
        with pytest.raises(WorkerEnded, match=reason) as ended:
            await _ask(process)
        assert not ended.value.timed_out
        assert not process.usable


async def test_a_raised_exception_is_described_briefly_with_its_line(launch: Launch) -> None:
    source = "def compute_score(solution_str):\n    x = 'x' * 9999\n    raise ValueError(x)"
    async with launch(source) as process:
        answer = await _ask(process)
        assert answer["kind"] == "raised"
        assert answer["cause"].startswith("ValueError: xxx")
        assert answer["cause"].endswith("... (reward.py:3)")
        assert len(answer["cause"]) < 450


async def test_exit_alarm_and_asyncio_run_work_in_a_function(launch: Launch) -> None:
    source = """
import asyncio, signal, sys
def _ring(*_): raise TimeoutError("rang")
async def _later(): return 0.25
def compute_score(solution_str):
    if solution_str == "exit": sys.exit(1)
    if solution_str == "run": return asyncio.run(_later())
    if solution_str == "await": return _later()
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
"""
    async with launch(source) as process:
        assert (await _ask(process, completions=["exit"]))["cause"].startswith("SystemExit: 1")
        assert (await _ask(process, completions=["alarm"]))["cause"].startswith("TimeoutError: rang")
        for text in ("run", "await"):
            assert (await _ask(process, completions=[text]))["scores"][0]["reward"] == 0.25


async def test_a_job_is_tried_as_often_as_it_may_be(launch: Launch) -> None:
    source = """
calls = 0
def compute_score(solution_str):
    global calls
    calls += 1
    if calls < 3: raise OSError(calls)
    return calls
"""
    async with launch(source) as process:
        answers = [await _ask(process, attempts=3), await process.receive(30.0), await process.receive(30.0)]
    assert [answer.get("cause", "").partition(" (")[0] for answer in answers] == ["OSError: 1", "OSError: 2", ""]
    assert answers[-1]["scores"][0]["reward"] == 3.0


@pytest.mark.parametrize(
    ("source", "name", "reason"),
    [
        ("def compute_scores(solution_str): pass", "compute_score", "did you mean 'compute_scores'"),
        ("compute_score = 3", "compute_score", "no function 'compute_score'"),
        ("def compute_score(text): pass", "compute_score", "parameters \\(text\\); write it as"),
        ("def compute_score(:", "compute_score", "SyntaxError"),
        ("import nowhere_to_be_found", "compute_score", "No module named 'nowhere_to_be_found'"),
        ("raise SystemExit('no')", "compute_score", "SystemExit: no"),
    ],
)
async def test_a_function_that_cannot_be_loaded_is_bad_input(
    launch: Launch, source: str, name: str, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        async with launch(source, name):
            pass


async def test_loading_that_hangs_or_dies_is_typed(launch: Launch) -> None:
    with pytest.raises(RewardTimeout, match=r"cannot be loaded: no answer within 0\.3 s"):
        async with launch("import time; time.sleep(600)", load_limit_s=0.3):
            pass
    with pytest.raises(RewardFailed, match="exit code 7"):
        async with launch("import os; os._exit(7)"):
            pass


async def test_a_file_may_import_its_neighbours_and_define_dataclasses(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_reward.py").write_text("BONUS = 0.5")
    source = """
from __future__ import annotations
from dataclasses import dataclass
from neighbour_of_reward import BONUS
@dataclass
class Reward:
    value: float
def compute_score(solution_str): return Reward(BONUS).value
"""
    async with launch(source) as process:
        assert (await _ask(process))["scores"][0]["reward"] == 0.5
    assert not (tmp_path / "__pycache__").exists()


async def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("import time\ndef compute_score(solution_str):\n    time.sleep(600)")
    parent_code = f"""
import asyncio, json, os, sys
from pathlib import Path
from functions.reward.user_process import UserCode, UserProcess, worker_environment
async def main():
    file = UserCode(Path({str(tmp_path / "reward.py")!r}), "compute_score", "")
    process = await UserProcess.start(file, worker_environment(os.environ), 30.0)
    process.send_round([json.dumps({JOB!r}).encode() + b"\\n"], concurrency=1, limit_s=600)
    await asyncio.sleep(0.05)
    print(process.pid, flush=True)
    await process.receive(600)
asyncio.run(main())
"""
    environment = worker_environment(os.environ)
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent_code, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    psutil.wait_procs([child], timeout=60)
    assert not _is_alive(child)


def _is_alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
