"""Run code in the sandbox: a locked process for each run, in a folder of its own that goes with it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from functions.reward.sandbox.jail import Limits

_PROGRAM = Path(__file__).with_name("program.py")
# Nothing of this process's environment but where its interpreter finds shared libraries.
_PASSED_ON = ("LD_LIBRARY_PATH",)
_START_LIMIT_S = 30.0
_REAP_LIMIT_S = 5.0
_MAX_ANSWER_BYTES = 2**22
_WATCH_S = 0.05
_MAX_FOLDER_BYTES = 2**26
_MAX_FOLDER_ENTRIES = 2000


class SandboxUnavailable(Exception):
    """The machine cannot isolate code; nothing was run. Says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRun:
    """What one run left behind. All of it was written beside code that may lie."""

    exit_code: int | None
    """``None``: it was killed, by the time limit or for what it wrote."""
    output: bytes
    """Its standard output."""
    answers: tuple[dict[str, Any], ...]
    """One for each request, as far as it came."""


class Sandbox:
    """Runs Python code that nobody has read. At most ``num_at_once`` processes at a time; the others wait.

    Not as many as there are cores: each may take all the memory that it is allowed.
    """

    def __init__(self, environ: Mapping[str, str], *, num_at_once: int = 4) -> None:
        self._environment = {name: environ[name] for name in _PASSED_ON if name in environ}
        self._free = asyncio.Semaphore(num_at_once)

    async def run(
        self,
        code: str,
        limits: Limits,
        *,
        wall_s: float,
        given: str = "",
        requests: Sequence[Mapping[str, Any]] = (),
    ) -> SandboxRun:
        """Run ``code`` with ``given`` as its standard input, then the requests (see ``program``) one by one.

        Raises SandboxUnavailable where the isolation is not complete.
        """
        async with self._free:
            # The two files are no part of the folder: code cannot put another one in their place.
            with (
                tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as name,
                tempfile.TemporaryFile() as stdin,
                tempfile.TemporaryFile() as stdout,
            ):
                stdin.write(given.encode(errors="surrogateescape"))
                stdin.seek(0)
                folder = Path(name)
                async with self._process(folder, limits, stdin.fileno(), stdout.fileno()) as process:
                    answers = await _converse(process, folder, wall_s, code, requests)
                stdout.seek(0)
                return SandboxRun(
                    exit_code=_exit_code(process), output=stdout.read(limits.file_bytes), answers=tuple(answers)
                )

    @contextlib.asynccontextmanager
    async def _process(self, folder: Path, limits: Limits, stdin: int, stdout: int) -> AsyncIterator[Process]:
        own = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(folder), "TMPDIR": str(folder)}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-B", str(_PROGRAM)),
            *(json.dumps(asdict(limits)), str(folder), str(stdin), str(stdout)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=self._environment | own | threads,
            pass_fds=(stdin, stdout),
            start_new_session=True,
            limit=_MAX_ANSWER_BYTES,
        )
        try:
            yield process
        finally:
            _kill(process)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REAP_LIMIT_S):
                    await process.communicate()


async def _converse(
    process: Process, folder: Path, wall_s: float, code: str, requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The answers, until the process ends, is out of time or has written too much."""
    answers: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(_START_LIMIT_S):
            locked = await _answer(process)
    except TimeoutError:
        locked = {"missing": f"a process that starts within {_START_LIMIT_S:g} s"}
    if locked is None or "missing" in locked:
        reason = "an interpreter that starts locked in" if locked is None else locked["missing"]
        raise SandboxUnavailable(f"the sandbox needs {reason}")
    watch = asyncio.create_task(_kill_when_overfull(process, folder))
    try:
        with contextlib.suppress(TimeoutError, ConnectionError, ValueError):
            async with asyncio.timeout(wall_s):
                await _exchange(process, code, requests, answers)
    finally:
        watch.cancel()
    return answers


async def _exchange(
    process: Process, code: str, requests: Sequence[Mapping[str, Any]], answers: list[dict[str, Any]]
) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"code": code}).encode() + b"\n")
    ran = await _answer(process) if requests else None
    if ran is not None and "ran" in ran:
        # Not before: code that is still running could read what it is going to be asked.
        process.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        process.stdin.write_eof()
        while len(answers) < len(requests) and (answer := await _answer(process)) is not None:
            answers.append(answer)
    process.stdin.close()
    await process.wait()


async def _answer(process: Process) -> dict[str, Any] | None:
    """The next line. ``None`` at the end; raises ValueError for what is not of the protocol."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        return None
    answer = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError("an answer is not an object")
    return answer


async def _kill_when_overfull(process: Process, folder: Path) -> None:
    while True:
        if await asyncio.to_thread(_is_overfull, folder):
            _kill(process)
            return
        await asyncio.sleep(_WATCH_S)


def _is_overfull(folder: Path) -> bool:
    num_bytes = num_entries = 0
    for where, folders, files in os.walk(folder):
        num_entries += len(folders) + len(files)
        for name in files:
            with contextlib.suppress(OSError):
                num_bytes += os.lstat(os.path.join(where, name)).st_blocks * 512
        if num_bytes > _MAX_FOLDER_BYTES or num_entries > _MAX_FOLDER_ENTRIES:
            return True
    return False


def _kill(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _exit_code(process: Process) -> int | None:
    code = process.returncode
    return None if code is None or code == -signal.SIGKILL else code
