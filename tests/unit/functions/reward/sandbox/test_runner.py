"""The sandbox against code that tries to get out: what it may do, and what fails."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from functions.reward.sandbox import runner
from functions.reward.sandbox.jail import Limits
from functions.reward.sandbox.runner import Sandbox, SandboxRun, SandboxUnavailable

LIMITS = Limits(cpu_s=1, memory_bytes=2**28, file_bytes=2**20)


@pytest.fixture
def sandbox() -> Sandbox:
    return Sandbox(os.environ | {"REDIS_PASSWORD": "hunter2"}, num_at_once=1)


async def run(sandbox: Sandbox, code: str, *, wall_s: float = 20.0, given: str = "") -> SandboxRun:
    return await sandbox.run(code, LIMITS, wall_s=wall_s, given=given)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(sum(map(int, input().split())))", "6"),
        ("import sys; print(sys.stdin.read().split()[-1]); sys.exit(0)", "3"),
        (
            "open('own', 'w').write('x'); import os; os.mkdir('d'); os.rename('own', 'd/own'); print(os.listdir('d'))",
            "['own']",
        ),
        ("import tempfile; print(tempfile.NamedTemporaryFile().write(b'12'))", "2"),
        ("import threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()", "thread"),
        ("import numpy; print(int(numpy.arange(4) @ numpy.arange(4)))", "14"),
        ("import random, json, heapq, re, datetime, fractions, decimal; print(len(random.randbytes(3)))", "3"),
    ],
)
async def test_plain_programs_run(sandbox: Sandbox, code: str, output: str) -> None:
    done = await run(sandbox, code, given="1 2 3\n")
    assert (done.exit_code, done.output.decode().strip()) == (0, output)


OUTSIDE = "{outside}"
REFUSED = {
    "reading a token file": f"open({OUTSIDE!r}).read()",
    "reading where users are named": "open('/etc/passwd').read()",
    "reading another process's environment": "open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "listing the file system": "os.listdir('/')",
    "writing outside": f"open({OUTSIDE!r}, 'w')",
    "appending outside": f"open({OUTSIDE!r}, 'a')",
    "making a file beside": "open('../beside', 'w')",
    "truncating outside": f"os.truncate({OUTSIDE!r}, 0)",
    "changing a mode outside": f"os.chmod({OUTSIDE!r}, 0o777)",
    "deleting outside": f"os.unlink({OUTSIDE!r})",
    "moving a file in": f"os.rename({OUTSIDE!r}, 'mine')",
    "linking a file in": f"os.link({OUTSIDE!r}, 'mine')",
    "following its own link": f"os.symlink({OUTSIDE!r}, 'link'); open('link').read()",
    "a socket": "import socket; socket.socket()",
    "a pair of sockets": "import socket; socket.socketpair()",
    "forking": "os.fork()",
    "starting a program": "import subprocess; subprocess.run(['/bin/true'])",
    "becoming a program": "os.execv('/bin/true', ['true'])",
    "signalling init": "os.kill(1, 9)",
    "signalling its parent": "os.kill(os.getppid(), 9)",
    "signalling everything": "os.kill(-1, 9)",
    "limits of its parent": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
    "more memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))",
    "reading past a mode": "os.close(os.open('locked', os.O_CREAT | os.O_WRONLY, 0)); open('locked')",
    "another user": "os.setuid(12345)",
    "another root": "os.chroot('.')",
    "a big file": "open('big', 'wb').write(bytes(2**21))",
    "much memory": "bytearray(2**29)",
}


async def test_what_reaches_out_fails(sandbox: Sandbox, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hunter2")
    token.chmod(0o600)
    attempts = {name: step.replace(OUTSIDE, str(token)) for name, step in REFUSED.items()}
    code = f"""
import os
for name, step in {attempts!r}.items():
    try:
        exec(step)
        print("done:", name)
    except (OSError, MemoryError, ValueError):
        print("refused:", name)
"""
    done = await run(sandbox, code)
    assert done.output.decode().splitlines() == [f"refused: {name}" for name in REFUSED]
    assert done.exit_code == 0
    assert token.read_text() == "hunter2"
    assert token.stat().st_mode & 0o777 == 0o600


async def test_calls_past_the_interpreter_fail_too(sandbox: Sandbox) -> None:
    # ptrace, mount, bpf, io_uring_setup, process_vm_readv, unshare, init_module, keyctl: numbers of x86-64.
    numbers = [101, 165, 321, 425, 310, 272, 175, 250]
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in {numbers}:
    print(libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    assert (await run(sandbox, code)).output.decode().split("\n")[:-1] == ["-1 1"] * len(numbers)


async def test_nothing_of_the_environment_is_there(sandbox: Sandbox) -> None:
    names = (await run(sandbox, "import os; print(*sorted(os.environ))")).output.decode().split()
    assert set(names) <= {
        *("HOME", "LANG", "PATH", "TMPDIR", "LD_LIBRARY_PATH"),
        *("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }


async def test_a_fork_bomb_makes_no_process(sandbox: Sandbox) -> None:
    code = """
import os
made = 0
for _ in range(1000):
    try: made += os.fork() >= 0
    except OSError: pass
print(made)
"""
    assert (await run(sandbox, code)).output == b"0\n"


async def test_threads_are_bounded_by_the_memory(sandbox: Sandbox) -> None:
    code = """
import threading, time
started = 0
try:
    for _ in range(10_000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except (RuntimeError, MemoryError):
    print(started, flush=True)
import os; os._exit(0)
"""
    assert int((await run(sandbox, code)).output) < 200


async def test_an_endless_loop_is_ended_by_its_cpu_limit_even_if_it_ignores_the_signal() -> None:
    sandbox = Sandbox(os.environ, num_at_once=2)
    stubborn = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    ended = await asyncio.gather(run(sandbox, "while True: pass"), run(sandbox, stubborn))
    assert [done.exit_code for done in ended] == [-signal.SIGXCPU, None]


async def test_a_program_that_waits_is_ended_by_the_clock_and_leaves_nothing(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    began = time.monotonic()
    done = await run(sandbox, "import time\nopen('left', 'w').write('x')\ntime.sleep(600)", wall_s=0.5)
    assert done.exit_code is None
    assert time.monotonic() - began < 60
    assert os.listdir(tmp_path) == []
    assert not [child for child in psutil.Process().children() if str(runner._PROGRAM) in child.cmdline()]


async def test_a_program_that_fills_the_disk_is_ended(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MAX_FOLDER_BYTES", 2**22)
    code = "import time\nfor i in range(100): open(str(i), 'wb').write(bytes(2**20))\ntime.sleep(600)"
    done = await run(sandbox, code)
    assert done.exit_code is None


async def test_requests_are_answered_one_by_one(sandbox: Sandbox) -> None:
    done = await sandbox.run(
        "def f(a, b): return a + b\nclass Solution:\n    def g(self, x): return [x]",
        LIMITS,
        wall_s=20.0,
        requests=[
            {"call": "f", "arguments": [1, 2]},
            {"call": "g", "arguments": ["x"]},
            {"call": "f", "arguments": []},
            {"test": "assert f(1, 2) == 3", "mark": "m"},
            {"test": "assert f(1, 2) == 4", "mark": "m"},
        ],
    )
    answers = list(done.answers)
    assert answers[:2] == [{"result": 3}, {"result": ["x"]}]
    assert "TypeError" in answers[2]["raised"]
    assert answers[3] == {"passed": "m"}
    assert "AssertionError" in answers[4]["raised"]
    assert done.exit_code == 0


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "raise SystemExit", "raise SystemExit(0)"])
async def test_an_early_end_answers_nothing(sandbox: Sandbox, end: str) -> None:
    requests = [{"test": end, "mark": "m"}, {"test": "pass", "mark": "m"}]
    assert (await sandbox.run("x = 1", LIMITS, wall_s=20.0, requests=requests)).answers == ()
    assert (await sandbox.run(end, LIMITS, wall_s=20.0, requests=requests)).answers == ()


WITHOUT_LANDLOCK = """
import ctypes, runpy, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
described = ctypes.create_string_buffer(struct.pack("=H6xQ", len(steps), ctypes.addressof(program)))
assert libc.prctl(22, 2, described, 0, 0) == 0
runpy.run_path({program!r}, run_name="__main__")
"""


async def test_it_refuses_to_run_where_landlock_is_missing(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_kernel = tmp_path / "old_kernel.py"
    old_kernel.write_text(WITHOUT_LANDLOCK.format(program=str(runner._PROGRAM)))
    monkeypatch.setattr(runner, "_PROGRAM", old_kernel)
    with pytest.raises(SandboxUnavailable, match=r"the sandbox needs Landlock \(Linux 5.13"):
        await run(sandbox, f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert not (tmp_path / "ran").exists()


async def test_it_refuses_when_the_process_does_not_start(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_PROGRAM", tmp_path / "nowhere.py")
    with pytest.raises(SandboxUnavailable, match="an interpreter that starts locked in"):
        await run(sandbox, "print(1)")
