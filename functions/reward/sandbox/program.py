"""The sandboxed process: ``python -I -B program.py LIMITS FOLDER IN OUT``, all as JSON or paths or descriptors.

JSON lines. It locks itself in and says so, or what is missing; then it reads the code, runs it with IN and OUT as
standard input and output, and says that it ran. Further lines hold what is to be done with the names that the code
made: ``{"call": name, "arguments": [...]}`` is answered by ``{"result": ...}``, ``{"test": source, "mark": nonce}`` by
``{"passed": nonce}``. Whatever raises is answered by ``{"raised": ...}``; an exit is answered by nothing.

Verdicts are the parent's: what comes from here was written beside code that may lie.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

if __name__ == "__main__":
    # Isolated mode knows neither the environment's paths nor the script's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from functions.reward.sandbox.jail import Limits, enter
from functions.reward.sandbox.kernel import Unavailable

_MAX_CAUSE_CHARS = 300


def main() -> None:
    """Lock in, run, serve."""
    limits, folder, given, output = sys.argv[1:]
    requests, answers = _take_pipes(int(given), int(output))
    try:
        enter(Path(folder), Limits(**json.loads(limits)))
    except (Unavailable, OSError) as error:
        _send(answers, {"missing": str(error)})
        return
    _send(answers, {"locked": True})
    del sys.path[0]
    names: dict[str, Any] = {"__name__": "__main__"}
    request = json.loads(requests.readline())
    if not _try(answers, lambda: exec(compile(request["code"], "program.py", "exec"), names)):
        sys.exit(1)
    sys.stdout.flush()
    _send(answers, {"ran": True})
    for line in requests:
        _serve(json.loads(line), names, answers)


def _serve(request: dict[str, Any], names: dict[str, Any], answers: BinaryIO) -> None:
    if "call" in request:
        _try(answers, lambda: _send(answers, {"result": _function(request["call"], names)(*request["arguments"])}))
    elif _try(answers, lambda: exec(compile(request["test"], "test.py", "exec"), dict(names))):
        _send(answers, {"passed": request["mark"]})


def _function(name: str, names: dict[str, Any]) -> Any:
    """A function of that name, or the method of a class named Solution."""
    if name not in names and "Solution" in names:
        return getattr(names["Solution"](), name)
    return names[name]


def _try(answers: BinaryIO, work: Any) -> bool:
    try:
        work()
    except SystemExit as error:
        if error.code not in (None, 0):
            _send(answers, {"raised": f"SystemExit: {error.code}"[:_MAX_CAUSE_CHARS]})
        # An exit is no way to pass what comes after it.
        sys.stdout.flush()
        os._exit(1 if error.code not in (None, 0) else 0)
    except BaseException as error:
        _send(answers, {"raised": f"{type(error).__name__}: {error}"[:_MAX_CAUSE_CHARS]})
        return False
    return True


def _send(answers: BinaryIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


def _take_pipes(given: int, output: int) -> tuple[BinaryIO, BinaryIO]:
    """The two pipes of the protocol, moved away; the code's own files take the places of standard input and output."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(given, 0)
    os.dup2(output, 1)
    os.close(given)
    os.close(output)
    return requests, answers


if __name__ == "__main__":
    main()
