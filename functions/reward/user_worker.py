"""The child process that runs one reward function: ``python -m functions.reward.user_worker SOURCE PATH NAME``.

SOURCE says what PATH is: a ``file``, an installed ``module``, or a ``rule`` of ours, as the JSON of its contract.

JSON lines. It first says how the function is called, or why it cannot be; then for each round it reads a header
(``num_jobs``, ``concurrency``, ``limit_s``) and that many jobs, and writes one line for each try of a job:
``{"index", "scores"}`` or ``{"index", "kind", "cause"}``. A job that raised is tried again at once, as often as its
``attempts`` says. Function calls run in the main thread, so ``signal.alarm`` and ``asyncio.run`` work in them.

What the user's code prints goes to stderr, and what it reads is empty: the two pipes belong to the protocol.
Stays small: it is started for every run, and imports the standard library only, but for a rule.
"""

import asyncio
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from functions.reward.signatures import (
    BadResult,
    Job,
    Signature,
    UnusableRow,
    call_arguments,
    read_result,
    recognise,
)

_MAX_CAUSE_CHARS = 400
_PR_SET_PDEATHSIG = 1
# A user's sys.exit() ends his call, not the worker.
_USER_ERRORS = (Exception, SystemExit)


def main() -> None:
    """Load the function, then serve rounds until the input ends."""
    source, path, name = sys.argv[1:]
    _end_with_parent()
    requests, answers = _take_pipes()

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        function = _LOADERS[source](path, name)
        signature = recognise(function)
    except _USER_ERRORS as error:
        traceback.print_exc()
        send({"kind": "load", "cause": describe(error, path)})
        return
    send(
        {
            "form": signature.form,
            "is_async": signature.is_async,
            "takes_token_ids": signature.takes_token_ids,
        }
    )
    Rounds(function, signature, path, requests, send).serve()


class Rounds:
    """The jobs of one round after another, against one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        path: str,
        requests: BinaryIO,
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self._function = function
        self._signature = signature
        self._path = path
        self._requests = requests
        self._send = send

    def serve(self) -> None:
        """Serve rounds until the input ends."""
        if not self._signature.is_async:
            for line in iter(self._requests.readline, b""):
                self._serve_in_turn(**json.loads(line))
            return
        # One event loop for all rounds: clients that the function keeps stay usable.
        with asyncio.Runner() as runner:
            for line in iter(self._requests.readline, b""):
                runner.run(self._serve_concurrently(**json.loads(line)))

    def _serve_in_turn(self, num_jobs: int, concurrency: int, limit_s: float) -> None:
        for index in range(num_jobs):
            job: Job = json.loads(self._requests.readline())
            for _ in range(job["attempts"]):
                if self._answer(index, job):
                    break

    async def _serve_concurrently(self, num_jobs: int, concurrency: int, limit_s: float) -> None:
        free = asyncio.Semaphore(concurrency)

        async def run(index: int, job: Job) -> None:
            try:
                for _ in range(job["attempts"]):
                    if await self._answer_async(index, job, limit_s):
                        break
            finally:
                free.release()

        async with asyncio.TaskGroup() as jobs:
            for index in range(num_jobs):
                await free.acquire()
                # The line was written before this round began: reading it does not hold up the loop.
                jobs.create_task(run(index, json.loads(self._requests.readline())))

    def _answer(self, index: int, job: Job) -> bool:
        """Try the job once and send what came of it; False if it is worth another try."""
        try:
            result = self._function(**call_arguments(self._signature, job))
            if inspect.isawaitable(result):
                result = asyncio.run(_wait_for(result))
            scores = read_result(self._signature, result, len(job["completions"]))
        except _USER_ERRORS as error:
            return self._send_failure(index, error)
        self._send({"index": index, "scores": scores})
        return True

    async def _answer_async(self, index: int, job: Job, limit_s: float) -> bool:
        timer = asyncio.timeout(limit_s)
        try:
            async with timer:
                result = await self._function(**call_arguments(self._signature, job))
            scores = read_result(self._signature, result, len(job["completions"]))
        except _USER_ERRORS as error:
            if timer.expired():
                self._send({"index": index, "kind": "timeout", "cause": f"no answer within {limit_s:g} s"})
                return False
            return self._send_failure(index, error)
        self._send({"index": index, "scores": scores})
        return True

    def _send_failure(self, index: int, error: BaseException) -> bool:
        if isinstance(error, UnusableRow):
            self._send({"index": index, "kind": "unusable_row", "cause": str(error)})
            return True
        if isinstance(error, BadResult):
            cause = str(error)
        else:
            traceback.print_exception(error)
            cause = describe(error, self._path)
        self._send({"index": index, "kind": "raised", "cause": cause})
        return False


def load_from_file(path: str, name: str) -> Callable[..., Any]:
    """The callable ``name`` of the file ``path``, which may import its neighbours."""
    spec = importlib.util.spec_from_file_location("user_reward_function", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    sys.path.append(str(Path(path).parent))
    module = importlib.util.module_from_spec(spec)
    # Registered first, as an import does: dataclasses and pickling look the module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return _function_of(module, name)


def load_from_module(path: str, name: str) -> Callable[..., Any]:
    """The callable ``name`` of the installed module ``path``."""
    return _function_of(importlib.import_module(path), name)


def load_rule(path: str, name: str) -> Callable[..., Any]:
    """The built-in rule that the JSON ``path`` describes, in verl's form."""
    from functions.reward.rules.in_process import rule_function

    return rule_function(path)


_LOADERS = {"file": load_from_file, "module": load_from_module, "rule": load_rule}


def _function_of(module: ModuleType, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        nearest = get_close_matches(name, public, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(public) or 'none'}."
        raise AttributeError(f"there is no function {name!r} in it: {hint}")
    return function


def describe(error: BaseException, path: str) -> str:
    """``ValueError: what it said (reward.py:7)``, with the last line of the user's file it came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if len(text) > _MAX_CAUSE_CHARS:
        text = f"{text[: _MAX_CAUSE_CHARS - 3]}..."
    return f"{text} ({Path(path).name}:{lines[-1]})" if lines else text


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """stdin and stdout, moved to descriptors that only the protocol knows and that no program started by it gets."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def _end_with_parent() -> None:
    """A function killed with -9 cannot end its children: let the kernel do it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
