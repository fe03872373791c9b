"""Programs of completions against their rows' tests, in the sandbox."""

import json
import os
from typing import Any

import pytest

from functions.reward.code_reward import CodeRewards
from functions.reward.outcome import CompletionText, Rewarded
from functions.reward.sandbox.runner import Sandbox, SandboxUnavailable
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed
from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import CodeParameters, RewardInputs, RuleReward

ADD_LINES = json.dumps({"inputs": ["1 2\n", "3 4\n", "9 9\n"], "outputs": ["3\n", "7\n", "18\n"]})
ADD_CALLS = json.dumps({"inputs": [[1, 2], [3, 4], [9, 9]], "outputs": [3, 7, 18], "fn_name": "add"})
ADD_ASSERTS = json.dumps(["assert add(1, 2) == 3", "assert add(3, 4) == 7", "assert add(9, 9) == 18"])
EQUAL_TO_ALL = """
class Equal(int):
    def __eq__(self, other): return False
    def __ne__(self, other): return False
def add(a, b): return Equal(a)
"""


async def rewards(completions: list[str], ground_truth: str | None, **parameters: Any) -> list[float]:
    reward = RuleReward(name="code", parameters=CodeParameters(**{"test_timeout_s": 0.3} | parameters))
    inputs = RewardInputs(
        prompts=BlobRef(id="run/prompts", num_bytes=1, sha256="0" * 64),
        row_uids=("a",),
        num_samples=len(completions),
        model=ModelRef(path="model"),
        reward=reward,
    )
    prompt = Prompt(row_uid="a", token_ids=(1,), text="?", ground_truth=ground_truth)
    asked = [(prompt, CompletionText(SampleId("a", sample), text, (1,))) for sample, text in enumerate(completions)]
    outcomes, failures = await CodeRewards(os.environ).score(asked, inputs, reward)
    assert not failures
    found = [outcomes[completion.id] for _, completion in asked]
    return [outcome.reward for outcome in found if isinstance(outcome, Rewarded)]


async def test_standard_input_and_output() -> None:
    completions = [
        "```python\nprint(sum(map(int, input().split())))\n```",
        "print(3)",
        "print(sum(map(int, input().split())))\nraise ValueError",
        "1 +",
        "no program ```",
    ]
    assert await rewards(completions, ADD_LINES) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert await rewards(completions[:2], ADD_LINES, partial=True) == [1.0, pytest.approx(1 / 3)]


async def test_calls_of_a_function_or_a_solution() -> None:
    completions = [
        "def add(a, b): return a + b",
        "class Solution:\n    def add(self, a, b): return a + b",
        "def add(a, b): return 7",
        EQUAL_TO_ALL,
        "def plus(a, b): return a + b",
        "def add(a, b): import os; os._exit(0)",
    ]
    assert await rewards(completions, ADD_CALLS) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert await rewards(completions[2:3], ADD_CALLS, partial=True) == [pytest.approx(1 / 3)]


async def test_asserts() -> None:
    completions = [
        "def add(a, b): return a + b",
        "def add(a, b): return 7",
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "def add(a, b): raise SystemExit(0)",
        "print('passed')",
    ]
    assert await rewards(completions, ADD_ASSERTS) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    check = "def check(candidate):\n    assert candidate(1, 2) == 3\n\ncheck(add)"
    assert await rewards(completions[:2], check) == [1.0, 0.0]


async def test_a_loop_and_a_memory_bomb_are_wrong_and_no_failure() -> None:
    completions = ["def add(a, b):\n    while True: pass", "x = bytearray(2**40)\ndef add(a, b): return a + b"]
    assert await rewards(completions, '["assert add(1, 2) == 3"]') == [0.0, 0.0]


async def test_bad_tests_are_bad_input() -> None:
    with pytest.raises(InvalidInput, match="Row a: code needs tests"):
        await rewards(["x"], None)


async def test_without_isolation_nothing_is_run_and_nothing_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*arguments: Any, **options: Any) -> Any:
        raise SandboxUnavailable("the sandbox needs Landlock")

    monkeypatch.setattr(Sandbox, "run", refuse)
    with pytest.raises(RewardFailed, match="runs nothing here: the sandbox needs Landlock") as refused:
        await rewards(["x", "y"], ADD_CALLS)
    assert refused.value.details["missing"] == "the sandbox needs Landlock"
