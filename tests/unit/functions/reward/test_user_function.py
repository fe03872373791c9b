"""Users' functions against real child processes: both signatures, failures, hangs and retries."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from functions.reward.outcome import CompletionText, NotApplicable, Outcome, Rewarded
from functions.reward.user_function import UserFunctions, find_file
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout
from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import FunctionReward, RewardInputs

SAMPLES = 2
Result = tuple[dict[SampleId, Outcome], dict[str, RewardFailed]]


class Bench:
    """Scores two samples for each row with the function in ``source``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.functions = UserFunctions(roots=[folder], environ=os.environ, load_limit_s=30.0)

    async def score(self, source: str, texts: dict[str, list[str]], name: str = "f", **options: Any) -> Result:
        (self.folder / "reward.py").write_text(source)
        prompt_fields = options.pop("prompt", {})
        reward = FunctionReward(path="reward.py", name=name)
        inputs = RewardInputs(
            prompts=BlobRef(id="run/prompts", num_bytes=1, sha256="0" * 64),
            row_uids=tuple(texts),
            num_samples=SAMPLES,
            model=ModelRef(path="model"),
            reward=reward,
            **options,
        )
        asked = [
            (
                Prompt(row_uid=row, token_ids=(1,), text=f"{row}?", **({"ground_truth": "1"} | prompt_fields)),
                CompletionText(SampleId(row, sample), text, (7, sample)),
            )
            for row, row_texts in texts.items()
            for sample, text in enumerate(row_texts)
        ]
        return await self.functions.score(asked, inputs, reward)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.functions.close()


def _rewards(result: Result) -> dict[str, float | None]:
    return {str(id_): outcome.reward if isinstance(outcome, Rewarded) else None for id_, outcome in result[0].items()}


@pytest.mark.parametrize("prefix", ["", "async "])
async def test_verls_form_is_called_for_each_completion(bench: Bench, prefix: str) -> None:
    source = f"""
{prefix}def f(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info) == ("add", {{"level": 3}})
    return {{"score": float(solution_str == ground_truth), "length": len(solution_str), "pred": solution_str}}
"""
    prompt = {"data_source": "add", "columns": {"level": 3}}
    outcomes, failures = await bench.score(source, {"a": ["1", "22"], "b": ["3", "1"]}, prompt=prompt)
    assert not failures
    assert outcomes[SampleId("a", 0)] == Rewarded(reward=1.0, parts={"score": 1.0, "length": 1.0}, answer="1")
    assert outcomes[SampleId("a", 1)] == Rewarded(reward=0.0, parts={"score": 0.0, "length": 2.0}, answer="22")
    assert _rewards((outcomes, failures)) == {"a:0": 1.0, "a:1": 0.0, "b:0": 0.0, "b:1": 1.0}


@pytest.mark.parametrize("prefix", ["", "async "])
async def test_trls_form_is_called_for_each_row_and_none_is_not_applicable(bench: Bench, prefix: str) -> None:
    source = f"""
{prefix}def f(prompts, completions, completion_ids, answer, **columns):
    assert completion_ids == [[7, 0], [7, 1]] and answer == [3, 3] and set(map(len, columns.values())) == {{2}}
    return [None if text == "skip" else len(text) / len(prompt) for prompt, text in zip(prompts, completions)]
"""
    texts = {"a": ["1", "skip"], "b": ["", "1234"]}
    result = await bench.score(source, texts, prompt={"columns": {"answer": 3}})
    assert not result[1]
    assert _rewards(result) == {"a:0": 0.5, "a:1": None, "b:0": 0.0, "b:1": 2.0}
    assert result[0][SampleId("a", 1)] == NotApplicable()


async def test_trls_form_sees_messages_where_the_prompt_has_them(bench: Bench) -> None:
    source = (
        "def f(prompts, completions): return [len(p) + (c == [{'role': 'assistant', 'content': 'x'}]) for "
        "p, c in zip(prompts, completions)]"
    )
    prompt = {"messages": ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})}
    assert _rewards(await bench.score(source, {"a": ["x", "y"]}, prompt=prompt)) == {"a:0": 3.0, "a:1": 2.0}


async def test_an_exception_fails_the_call_and_names_row_sample_and_cause(bench: Bench) -> None:
    source = "def f(solution_str):\n    if solution_str == 'bad':\n        raise KeyError('boom')\n    return 1.0"
    _, failures = await bench.score(source, {"a": ["x", "x"], "b": ["x", "bad"], "c": ["bad", "x"]}, num_attempts=2)
    assert list(failures) == ["b"]
    error = failures["b"]
    assert type(error) is RewardFailed
    assert "row b, sample 1, in each of 2 attempts: KeyError: 'boom' (reward.py:3)" in error.message
    assert "'b?'" in error.message
    assert error.details == {"row_uid": "b", "sample": 1, "cause": "KeyError: 'boom' (reward.py:3)", "num_attempts": 2}
    # What the process had not come to yet is nobody's answer in the next call.
    assert _rewards(await bench.score(source, {"d": ["x", "x"]})) == {"d:0": 1.0, "d:1": 1.0}


async def test_a_failure_that_passes_is_retried(bench: Bench) -> None:
    source = """
calls = []
def f(solution_str):
    calls.append(solution_str)
    if calls.count(solution_str) < 3: raise OSError("try again")
    return 1.0
"""
    result = await bench.score(source, {"a": ["x", "y"]}, num_attempts=3)
    assert _rewards(result) == {"a:0": 1.0, "a:1": 1.0}
    assert not result[1]


HANGS = """
import asyncio, time
{prefix}def f(solution_str):
    if solution_str == "hang": {how}
    return float(solution_str)
"""


@pytest.mark.parametrize(
    ("prefix", "how"), [("", "time.sleep(600)"), ("async ", "await asyncio.sleep(600)"), ("async ", "time.sleep(600)")]
)
async def test_a_hang_is_ended_retried_and_named_and_is_never_a_zero(
    bench: Bench, prefix: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.reward.user_function._ASYNC_GRACE_S", 0.2)
    source = HANGS.format(prefix=prefix, how=how)
    texts = {"a": ["1", "2"], "b": ["3", "hang"], "c": ["5", "6"]}
    result = await bench.score(source, texts, timeout_s=0.8, num_attempts=1, on_failure="drop_group")
    assert list(result[1]) == ["b"]
    error = result[1]["b"]
    assert isinstance(error, RewardTimeout)
    assert "row b, sample 1, in each of 1 attempts: no answer within 0.8 s. The prompt is 'b?'" in error.message
    rewards = _rewards(result)
    assert "b:1" not in rewards
    assert {name: rewards[name] for name in ("a:0", "a:1", "c:0", "c:1")} == {
        **{"a:0": 1.0, "a:1": 2.0},
        **{"c:0": 5.0, "c:1": 6.0},
    }


async def test_a_hang_that_passes_costs_an_attempt_and_a_process(bench: Bench, tmp_path: Path) -> None:
    source = f"""
import os, time
from pathlib import Path
log = Path({str(tmp_path / "log")!r})
def f(solution_str):
    with log.open("a") as file: print(os.getpid(), solution_str, file=file)
    if log.read_text().count(" hang") == 1: time.sleep(600)
    return 1.0
"""
    result = await bench.score(source, {"a": ["x", "hang"], "b": ["y", "z"]}, timeout_s=0.8, num_attempts=2)
    assert _rewards(result) == {"a:0": 1.0, "a:1": 1.0, "b:0": 1.0, "b:1": 1.0}
    calls = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [text for _, text in calls] == ["x", "hang", "hang", "y", "z"]
    assert len({pid for pid, _ in calls[:2]}) == len({pid for pid, _ in calls[2:]}) == 1
    assert calls[0][0] != calls[2][0]


async def test_a_whole_row_of_trls_form_has_the_limit_of_all_its_completions(bench: Bench) -> None:
    source = "import time\ndef f(completions):\n    time.sleep(float(completions[0]))\n    return [1.0, 1.0]"
    result = await bench.score(source, {"a": ["0.7", ""], "b": ["600", ""]}, timeout_s=0.6, num_attempts=1)
    assert _rewards(result) == {"a:0": 1.0, "a:1": 1.0}
    assert isinstance(result[1]["b"], RewardTimeout)
    assert "row b, its 2 completions, in each of 1 attempts: no answer within 1.2 s" in result[1]["b"].message
    assert result[1]["b"].details["sample"] is None


@pytest.mark.parametrize(
    ("returned", "reason"),
    [("[1.0]", "1 rewards for 2 completions"), ("[1.0, float('nan')]", "reward is nan"), ("0.0", "instead of a list")],
)
async def test_a_wrong_number_of_rewards_or_a_nan_is_a_failure(bench: Bench, returned: str, reason: str) -> None:
    _, failures = await bench.score(f"def f(completions): return {returned}", {"a": ["x", "y"]}, num_attempts=1)
    assert reason in failures["a"].message
    assert not isinstance(failures["a"], RewardTimeout)


async def test_a_function_that_kills_its_process_is_a_named_failure(bench: Bench) -> None:
    source = "import os\ndef f(solution_str):\n    if solution_str == 'die': os._exit(9)\n    return 1.0"
    _, failures = await bench.score(source, {"a": ["x", "x"], "b": ["die", "x"]}, num_attempts=2)
    assert "row b, sample 0, in each of 2 attempts: its process ended (exit code 9)" in failures["b"].message


async def test_a_parameter_without_column_is_bad_input(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="cannot score row a: it requires answer"):
        await bench.score("def f(completions, answer): return [1.0, 1.0]", {"a": ["x", "y"]})


async def test_an_edited_file_is_loaded_anew(bench: Bench) -> None:
    for value in (1.0, 2.0):
        result = await bench.score(f"def f(solution_str): return {value}", {"a": ["x", "y"]})
        assert _rewards(result) == {"a:0": value, "a:1": value}


async def test_async_calls_overlap(bench: Bench) -> None:
    source = """
import asyncio
met = asyncio.Barrier(4)
async def f(solution_str):
    async with met: return 1.0
"""
    result = await bench.score(source, {"a": ["x", "y"], "b": ["x", "y"]}, num_attempts=1)
    assert len(_rewards(result)) == 4


async def test_long_and_odd_texts_cross_unchanged(bench: Bench) -> None:
    texts = {f"row{index}": ['\n"\\\u2028\x00{}' + "é" * 100_000, "\r\n"] for index in range(4)}
    source = "def f(solution_str): return sum(map(ord, solution_str))"
    rewards = _rewards(await bench.score(source, texts))
    assert rewards["row3:0"] == sum(map(ord, texts["row3"][0]))
    assert rewards["row3:1"] == 23.0


def test_paths_resolve_under_the_roots_alone(tmp_path: Path) -> None:
    root = tmp_path / "rewards"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "r.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    (root / "text.txt").write_text("")
    for path in ("deep/r.py", str(root / "deep" / "r.py"), "deep/../deep/r.py"):
        assert find_file(FunctionReward(path=path, name="f"), [tmp_path / "no", root]).path == root / "deep" / "r.py"
    for path in (
        "../outside.py",
        str(tmp_path / "outside.py"),
        "link.py",
        "/etc/passwd",
        str(tmp_path / "rewards2.py"),
    ):
        with pytest.raises(InvalidInput, match="outside the folders"):
            find_file(FunctionReward(path=path, name="f"), [root])
    for path in ("nowhere.py", "deep", "text.txt"):
        with pytest.raises(InvalidInput, match="no Python file"):
            find_file(FunctionReward(path=path, name="f"), [root])
    with pytest.raises(InvalidInput, match="not a path"):
        find_file(FunctionReward(path="a\0.py", name="f"), [root])
    with pytest.raises(InvalidInput, match="none is configured"):
        find_file(FunctionReward(path="r.py", name="f"), [])
