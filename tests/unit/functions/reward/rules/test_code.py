"""Programs and tests as texts."""

import json

import pytest

from functions.reward.rules.base import BadGroundTruth
from functions.reward.rules.code import (
    Asserts,
    Calls,
    InputOutput,
    is_same_output,
    is_same_result,
    program_in,
    read_tests,
)


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("First:\n```py\na\n```\nbetter:\n```python\nb\n```\ndone", "b\n"),
        ("```\nx\n```", "x\n"),
        ("```python\nx\n```\nIts output:\n```text\n1\n```", "x\n"),
        ("print(1)", "print(1)"),
        ("```bash\nls\n```", None),
        ("```python\nunclosed", None),
        (" \n", None),
    ],
)
def test_the_program_is_the_last_block_of_python(completion: str, program: str | None) -> None:
    assert program_in(completion) == program


def test_the_forms_of_tests() -> None:
    assert read_tests(json.dumps({"inputs": ["1\n", ["2", "3"]], "outputs": ["1", "5"]})) == InputOutput(
        inputs=("1\n", "2\n3"), outputs=("1", "5")
    )
    assert read_tests(json.dumps({"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"})) == Calls(
        name="add", arguments=([1, 2],), results=(3,)
    )
    assert read_tests('["assert f(1) == 1", "assert f(2)"]') == Asserts(sources=("assert f(1) == 1", "assert f(2)"))
    check = "def check(f):\n    assert f(1) == 1\ncheck(g)"
    assert read_tests(check) == Asserts(sources=(check,))


@pytest.mark.parametrize(
    "truth",
    [
        None,
        " ",
        "[]",
        "[1]",
        "5",
        '{"inputs": ["1"]}',
        '{"inputs": ["1"], "outputs": []}',
        '{"inputs": [], "outputs": []}',
        '{"inputs": [1], "outputs": ["1"]}',
        '{"inputs": ["1"], "outputs": ["1"], "fn_name": "f"}',
        '{"inputs": [[1]], "outputs": [1], "fn_name": 3}',
    ],
)
def test_what_is_no_test_is_refused(truth: str | None) -> None:
    with pytest.raises(BadGroundTruth, match="code needs"):
        read_tests(truth)


def test_output_is_compared_without_the_white_space_at_its_ends() -> None:
    assert is_same_output("1 2 \n3\n\n", "1 2\n3")
    assert not is_same_output("1  2", "1 2")
    assert not is_same_output("1\n\n2", "1\n2")


def test_results_are_compared_as_json() -> None:
    assert is_same_result([1, [2.0]], [1, [2]])
    assert is_same_result(3, [3])
    assert not is_same_result(True, 1)
    assert not is_same_result(0, False)
    assert not is_same_result("1", 1)
