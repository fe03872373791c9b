"""Programs and their tests, as texts. Pure: nothing is run here."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from functions.reward.rules.base import BadGroundTruth

_BLOCK = re.compile(r"^```[ \t]*([\w+-]*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON = ("python", "python3", "py", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOutput:
    """A program reads each text of ``inputs`` and has to write the one of ``outputs``."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The function ``name`` is called with each list of arguments and has to return the value of ``results``."""

    name: str
    arguments: tuple[list[Any], ...]
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserts:
    """Each source text is run after the program, among its names, and must not raise."""

    sources: tuple[str, ...]


Tests = InputOutput | Calls | Asserts


def program_in(completion: str) -> str | None:
    """The last fenced block of Python; a completion without any fence is a program as a whole."""
    blocks = [source for language, source in _BLOCK.findall(completion) if language.lower() in _PYTHON]
    if blocks:
        return str(blocks[-1])
    return None if "```" in completion or not completion.strip() else completion


def read_tests(ground_truth: str | None) -> Tests:
    """The tests of a row, in one of these forms:

    * ``{"inputs": [...], "outputs": [...]}`` as JSON: standard input and output (APPS, TACO, LiveCodeBench);
    * the same with ``"fn_name"``: arguments and results of a function, or of a method of the class ``Solution``;
    * a JSON list of Python sources, each one test (MBPP's ``test_list``);
    * any other text: one Python source (HumanEval's ``check(candidate)`` with its call).

    Raises BadGroundTruth.
    """
    if ground_truth is None or not ground_truth.strip():
        raise BadGroundTruth("code needs tests as ground truth, the row has none")
    try:
        tests = json.loads(ground_truth)
    except (ValueError, RecursionError):
        return Asserts(sources=(ground_truth,))
    if isinstance(tests, list) and tests and all(isinstance(source, str) for source in tests):
        return Asserts(sources=tuple(tests))
    if isinstance(tests, dict) and isinstance(tests.get("inputs"), list) and isinstance(tests.get("outputs"), list):
        return _pairs(tests["inputs"], tests["outputs"], tests.get("fn_name"))
    raise BadGroundTruth(
        'code needs {"inputs": [...], "outputs": [...]}, a list of sources or a source as ground truth'
    )


def _pairs(inputs: list[Any], outputs: list[Any], name: object) -> Tests:
    if not inputs or len(inputs) != len(outputs):
        raise BadGroundTruth(f"code needs as many outputs as inputs, the row has {len(outputs)} for {len(inputs)}")
    if name is None:
        return InputOutput(inputs=tuple(map(_lines, inputs)), outputs=tuple(map(_lines, outputs)))
    if not isinstance(name, str) or not all(isinstance(arguments, list) for arguments in inputs):
        raise BadGroundTruth("code needs fn_name as a text, and a list of arguments as each of its inputs")
    return Calls(name=name, arguments=tuple(inputs), results=tuple(outputs))


def _lines(text: object) -> str:
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text)
    if isinstance(text, str):
        return text
    raise BadGroundTruth("code needs a text, or a list of lines, for each of inputs and outputs")


def is_same_output(written: str, expected: str) -> bool:
    """Equal line by line, up to white space at the ends of lines and of the text."""
    return _trimmed(written) == _trimmed(expected)


def is_same_result(returned: object, expected: object) -> bool:
    """Equal as JSON, where a tuple is a list. APPS wraps some results in a list of one."""
    if type(returned) is bool or type(expected) is bool:
        return returned is expected
    return returned == expected or [returned] == expected


def _trimmed(text: str) -> Sequence[str]:
    return [line.rstrip() for line in text.strip().splitlines()]
