"""A user's reward function in a child process of its own, so that a hang can always be ended."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from functions.reward.signatures import Form
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout

_WORKER = "functions.reward.user_worker"
_PACKAGES_ROOT = Path(__file__).resolve().parents[2]
# What a Python process needs to start, compute and find its caches. Everything else stays out: addresses and
# passwords of stores, tokens, cloud credentials, proxies.
_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED", "VIRTUAL_ENV", "HF_HOME", "HF_HUB_OFFLINE"),
        *("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }
)
_MAX_ANSWER_BYTES = 1 << 22
_REAP_LIMIT_S = 5.0


class WorkerEnded(Exception):
    """The process hung and was ended, or ended by itself. Its unanswered jobs are open again."""

    def __init__(self, cause: str, *, timed_out: bool) -> None:
        super().__init__(cause)
        self.cause = cause
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class UserCode:
    """Which function of what, in which state: an edited file is another function."""

    path: Path | str
    name: str
    version: str
    source: Literal["file", "module", "rule"] = "file"
    """Whether ``path`` is a file, an installed module, or the JSON of a built-in rule."""

    def __str__(self) -> str:
        if self.source == "rule":
            return f"The reward rule {self.name!r}"
        return f"The reward function {self.name!r} of {self.path}"


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of ``environ`` that user code sees: a list of what may pass, since secrets have any name.

    This guards against mistakes, it is no sandbox: the process has the user and the files of its parent.
    """
    passed = {name: value for name, value in environ.items() if name in _PASSED_ON}
    search = [str(_PACKAGES_ROOT), *filter(None, [passed.get("PYTHONPATH")])]
    return passed | {"PYTHONPATH": os.pathsep.join(search)}


class UserProcess:
    """One child that has loaded one function. Serves one round of jobs at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._requests = process.stdin
        self._answers = process.stdout
        self._killed = False
        self.form: Form = "per_completion"
        self.is_async = False
        self.takes_token_ids = False

    @classmethod
    async def start(cls, code: UserCode, environment: Mapping[str, str], load_limit_s: float) -> Self:
        """A process that has loaded ``code``.

        Raises InvalidInput if the function cannot be loaded or called, RewardTimeout if loading hangs and
        RewardFailed if it ends the process.
        """
        # -P: modules of the working directory do not shadow the standard library; -B: no stale bytecode is left
        # beside the user's file. A session of its own: whatever the user's code starts is ended with it.
        self = cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-B", "-m", _WORKER, code.source, str(code.path), code.name),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
                limit=_MAX_ANSWER_BYTES,
            )
        )
        try:
            answer = await self.receive(load_limit_s)
            if answer.get("kind") == "load":
                raise InvalidInput(f"{code} cannot be used: {answer['cause']}", function=code.name)
            self.form = answer["form"]
            self.is_async = answer["is_async"]
            self.takes_token_ids = answer["takes_token_ids"]
        except WorkerEnded as ended:
            error = RewardTimeout if ended.timed_out else RewardFailed
            raise error(f"{code} cannot be loaded: {ended.cause}", function=code.name) from ended
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def pid(self) -> int:
        """Process id, also that of its group."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can serve another round."""
        return not self._killed and self._process.returncode is None

    def send_round(self, jobs: list[bytes], *, concurrency: int, limit_s: float) -> None:
        """Write a round: ``jobs`` are encoded lines. Answers may come before all of it has been taken."""
        header = {"num_jobs": len(jobs), "concurrency": concurrency, "limit_s": limit_s}
        self._requests.write(b"".join([json.dumps(header).encode() + b"\n", *jobs]))

    async def receive(self, limit_s: float, *, grace_s: float = 0.0) -> dict[str, Any]:
        """The next answer. Raises WorkerEnded, with the process gone, if none comes within limit and grace."""
        try:
            async with asyncio.timeout(limit_s + grace_s):
                line = await self._answers.readline()
            if line.endswith(b"\n"):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
                raise ValueError("an answer is not an object")
        except TimeoutError:
            await self.close()
            raise WorkerEnded(f"no answer within {limit_s:g} s", timed_out=True) from None
        except ValueError as error:
            await self.close()
            raise WorkerEnded(f"its process broke the protocol: {error}", timed_out=False) from error
        except BaseException:
            # Cancelled: what it still answers belongs to nobody.
            self.kill()
            raise
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_LIMIT_S):
                await self._process.wait()
        code = self._process.returncode
        await self.close()
        raise WorkerEnded(f"its process ended ({_exit_text(code)})", timed_out=False)

    def kill(self) -> None:
        """End the process and whatever it started, at once."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._requests.close()

    async def close(self) -> None:
        """Kill, and wait until nothing is left of it."""
        self.kill()
        with contextlib.suppress(TimeoutError):
            # A limit, since a process that left the group can hold the pipe open.
            async with asyncio.timeout(_REAP_LIMIT_S):
                while await self._answers.read(_MAX_ANSWER_BYTES):
                    pass
                await self._process.wait()


def _exit_text(code: int | None) -> str:
    if code is None:
        return "still running, its output closed"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
