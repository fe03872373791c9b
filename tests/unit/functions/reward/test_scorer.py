"""A reward call: every completion asked for has one finite reward, or the call says why not."""

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from functions.reward.outcome import CompletionText
from functions.reward.scorer import ModelMeans, Scorer
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout
from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import (
    FunctionReward,
    RegexParameters,
    RemoteReward,
    RewardInputs,
    RewardPart,
    RuleReward,
    Scores,
    SumReward,
)

EXACT = RuleReward(name="exact_number")


@pytest.fixture
async def scorer(tmp_path: Path) -> AsyncIterator[Scorer]:
    scorer = Scorer(roots=[tmp_path], environ=os.environ, allowed_hosts=(), secrets_folder=tmp_path / "secrets")
    yield scorer
    await scorer.close()


async def _no_compute(function: Any, *arguments: object) -> Any:
    raise AssertionError("no model is asked here")


NO_MODELS = ModelMeans(check=lambda reward: reward.model.path, compute=_no_compute, threads=1)


async def score(scorer: Scorer, prompts: Any, completions: Any, inputs: RewardInputs) -> Scores:
    return (await scorer.score(prompts, completions, inputs, models=NO_MODELS)).scores


def _inputs(reward: Any = EXACT, rows: tuple[str, ...] = ("a", "b"), **options: Any) -> RewardInputs:
    prompts = BlobRef(id="run/prompts", num_bytes=1, sha256="0" * 64)
    fields = {"num_samples": 2, "model": ModelRef(path="model"), **options}
    return RewardInputs(prompts=prompts, row_uids=rows, reward=reward, **fields)


def _prompts(rows: str = "ab", **fields: Any) -> list[Prompt]:
    return [Prompt(row_uid=row, token_ids=(1,), text=f"{row}:", **({"ground_truth": "1"} | fields)) for row in rows]


def _completions(rows: str = "ab", text: str = "#1", num_samples: int = 2) -> list[CompletionText]:
    return [CompletionText(SampleId(row, sample), text, (1,)) for row in rows for sample in range(num_samples)]


def _table(scores: Scores) -> list[tuple[str, int, float]]:
    return [(score.row_uid, score.sample, score.reward) for score in scores.scores]


async def test_scores_are_sorted_whatever_the_order_of_arrival(scorer: Scorer) -> None:
    rows = [f"row{index}" for index in range(12)]
    prompts = [Prompt(row_uid=row, token_ids=(1,), text="?", ground_truth=row[3:]) for row in rows]
    completions = [CompletionText(SampleId(row, sample), f"#{sample}", (1,)) for row in rows for sample in range(12)]
    shuffle = random.Random(0).shuffle
    shuffle(prompts)
    shuffle(completions)
    shuffle(rows)
    scores = await score(scorer, prompts, completions, _inputs(rows=tuple(rows), num_samples=12))
    assert _table(scores) == [
        (row, sample, float(row == f"row{sample}")) for row in sorted(rows) for sample in range(12)
    ]
    assert scores.dropped_rows == ()


async def test_a_rules_reward_is_its_own_part(scorer: Scorer) -> None:
    scores = await score(scorer, _prompts(), _completions(), _inputs())
    assert [item.reward_parts for item in scores.scores] == [{"exact_number": 1.0}] * 4


async def test_a_functions_number_and_dict_become_parts(scorer: Scorer, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def number(solution_str): return 0.5\ndef parts(solution_str): return {'score': 0.5, 'format': 1, 'pred': 'x'}"
    )
    for name, expected in (("number", {"number": 0.5}), ("parts", {"score": 0.5, "format": 1.0})):
        inputs = _inputs(FunctionReward(path="r.py", name=name))
        scores = await score(scorer, _prompts(), _completions(), inputs)
        assert [item.reward for item in scores.scores] == [0.5] * 4
        assert [item.reward_parts for item in scores.scores] == [expected] * 4


async def test_rows_of_the_batch_that_are_not_asked_for_are_left_alone(scorer: Scorer) -> None:
    scores = await score(scorer, _prompts("xaby"), _completions("a"), _inputs(rows=("a",)))
    assert _table(scores) == [("a", 0, 1.0), ("a", 1, 1.0)]


@pytest.mark.parametrize(
    ("prompts", "completions", "inputs", "reason"),
    [
        (_prompts(), _completions()[:-1], _inputs(), "completions are missing: b:1"),
        (_prompts(), [], _inputs(num_samples=4), "missing: a:0, a:1, a:2, a:3, b:0 and 3 more"),
        (_prompts(), _completions(num_samples=3), _inputs(), "not asked for: a:2, b:2"),
        (_prompts(), _completions("abc"), _inputs(), "not asked for: c:0, c:1"),
        (_prompts(), [*_completions(), *_completions("a")], _inputs(), "completions have the id more than once: a:0"),
        (_prompts("a"), _completions(), _inputs(), "rows have no prompt in this batch: b"),
        (_prompts("abb"), _completions(), _inputs(), "prompts have the row uid more than once: b"),
        (_prompts(), _completions(), _inputs(rows=("a", "b", "a")), "rows are asked for more than once: a"),
        (_prompts(ground_truth=None), _completions(), _inputs(), "Row a: exact_number needs a plain number"),
        (_prompts(), _completions(), _inputs(FunctionReward(path="/etc/x.py", name="f")), "outside the folders"),
    ],
)
@pytest.mark.parametrize("on_failure", ["fail", "drop_group"])
async def test_bad_input_is_refused_and_named(
    scorer: Scorer,
    prompts: list[Prompt],
    completions: list[CompletionText],
    inputs: RewardInputs,
    reason: str,
    on_failure: str,
) -> None:
    inputs = inputs.model_copy(update={"on_failure": on_failure})
    with pytest.raises(InvalidInput, match=reason):
        await score(scorer, prompts, completions, inputs)


FAILS_ON_B = """
def raises(solution_str, ground_truth):
    if ground_truth == "b" and solution_str == "1": raise ValueError("boom")
    return 0.0
def none(completions, ground_truth):
    return [None if pair == ("1", "b") else 0.0 for pair in zip(completions, ground_truth)]
"""


def _failing_case(
    tmp_path: Path, name: str, on_failure: str
) -> tuple[list[Prompt], list[CompletionText], RewardInputs]:
    (tmp_path / "r.py").write_text(FAILS_ON_B)
    prompts = [Prompt(row_uid=row, token_ids=(1,), text=f"{row}:", ground_truth=row) for row in "abc"]
    completions = [CompletionText(SampleId(row, sample), str(sample), (1,)) for row in "abc" for sample in range(2)]
    reward = FunctionReward(path="r.py", name=name)
    return prompts, completions, _inputs(reward, ("a", "b", "c"), on_failure=on_failure, num_attempts=2)


@pytest.mark.parametrize(("name", "reason"), [("raises", "ValueError: boom"), ("none", "not applicable")])
async def test_a_completion_without_reward_fails_the_call_by_default(
    scorer: Scorer, tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(RewardFailed, match=f"row b, sample 1.*{reason}|{reason}.*row b, sample 1") as failed:
        await score(scorer, *_failing_case(tmp_path, name, "fail"))
    assert (failed.value.details["row_uid"], failed.value.details["sample"]) == ("b", 1)


@pytest.mark.parametrize("name", ["raises", "none"])
async def test_drop_group_leaves_the_whole_group_out_and_counts_it(
    scorer: Scorer, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    scores = await score(scorer, *_failing_case(tmp_path, name, "drop_group"))
    assert scores.dropped_rows == ("b",)
    assert _table(scores) == [("a", 0, 0.0), ("a", 1, 0.0), ("c", 0, 0.0), ("c", 1, 0.0)]
    assert "row b, sample 1" in caplog.text


ODD = """
import asyncio
async def odd(solution_str, ground_truth):
    if solution_str == "1":
        if ground_truth == "b": await asyncio.sleep(600)
        if ground_truth == "c": raise ValueError("boom")
        if ground_truth == "d": return None
        if ground_truth == "e": return float("nan")
    return float(ord(ground_truth))
"""


async def test_whatever_happens_to_others_every_row_keeps_its_own_reward(scorer: Scorer, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(ODD)
    rows = "abcdef"
    prompts = [Prompt(row_uid=row, token_ids=(1,), text=f"{row}:", ground_truth=row) for row in rows]
    completions = [CompletionText(SampleId(row, sample), str(sample), (1,)) for row in rows for sample in range(2)]
    random.Random(1).shuffle(completions)
    inputs = _inputs(
        FunctionReward(path="r.py", name="odd"),
        tuple(reversed(rows)),
        on_failure="drop_group",
        num_attempts=1,
        timeout_s=0.5,
    )
    scoring = await scorer.score(prompts, completions, inputs, models=NO_MODELS)
    assert _table(scoring.scores) == [(row, sample, float(ord(row))) for row in "af" for sample in range(2)]
    assert scoring.scores.dropped_rows == ("b", "c", "d", "e")
    assert scoring.failed_rows == ("b", "c", "e"), "to row d nothing applies, which is no failure"


def _sum(*parts: dict[str, Any]) -> SumReward:
    return SumReward(parts=tuple(RewardPart(**part) for part in parts))


async def test_a_sum_of_a_rule_in_this_process_one_in_a_child_and_a_function(scorer: Scorer, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def f(solution_str): return None if '2' in solution_str else {'score': 0.5, 'acc': 1}"
    )
    reward = _sum(
        {"name": "right", "reward": EXACT},
        {"name": "math", "weight": 2.0, "reward": RuleReward(name="math")},
        {"name": "form", "weight": 0.5, "shaping": True, "reward": _regex(".*#.")},
        {"name": "own", "reward": FunctionReward(path="r.py", name="f")},
    )
    texts = ("1 is #1", "it is 1", "#2", "")
    completions = [CompletionText(SampleId("a", sample), text, (1,)) for sample, text in enumerate(texts)]
    scores = await score(scorer, _prompts("a"), completions, _inputs(reward, ("a",), num_samples=4))
    assert [item.reward for item in scores.scores] == [1 + 2 + 0.5 + 0.5, 0 + 2 + 0 + 0.5, 0.5, 0.5]
    assert [item.reward_parts for item in scores.scores] == [
        {"right": 1.0, "math": 1.0, "form": 1.0, "own": 0.5, "own/acc": 1.0},
        {"right": 0.0, "math": 1.0, "form": 0.0, "own": 0.5, "own/acc": 1.0},
        {"right": 0.0, "math": 0.0, "form": 1.0},
        {"right": 0.0, "math": 0.0, "form": 0.0, "own": 0.5, "own/acc": 1.0},
    ]
    assert scores.scores[0].answer == "1"


def _regex(pattern: str, **options: Any) -> RuleReward:
    return RuleReward(name="regex", parameters=RegexParameters(pattern=pattern, **options))


BACKTRACKS = "(a+)+b"


async def test_a_pattern_that_backtracks_for_ever_is_a_timeout_and_no_zero(scorer: Scorer) -> None:
    completions = [CompletionText(SampleId(row, 0), "a" * 40 if row == "b" else "aab", (1,)) for row in "abc"]
    options = {"num_samples": 1, "timeout_s": 0.5, "on_failure": "drop_group"}
    inputs = _inputs(_regex(BACKTRACKS), ("a", "b", "c"), **options)
    scores = await score(scorer, _prompts("abc"), completions, inputs)
    assert (_table(scores), scores.dropped_rows) == ([("a", 0, 1.0), ("c", 0, 1.0)], ("b",))
    with pytest.raises(RewardTimeout, match="'regex' failed on row b, sample 0"):
        await score(scorer, _prompts("abc"), completions, inputs.model_copy(update={"on_failure": "fail"}))


async def test_a_run_may_choose_that_what_takes_for_ever_is_wrong(scorer: Scorer) -> None:
    completions = [CompletionText(SampleId(row, 0), "a" * 40 if row == "b" else "aab", (1,)) for row in "abc"]
    inputs = _inputs(_regex(BACKTRACKS, on_timeout="wrong"), ("a", "b", "c"), num_samples=1, timeout_s=0.5)
    scores = await score(scorer, _prompts("abc"), completions, inputs)
    assert _table(scores) == [("a", 0, 1.0), ("b", 0, 0.0), ("c", 0, 1.0)]


async def test_a_rule_in_a_child_refuses_a_row_as_one_in_this_process_does(scorer: Scorer) -> None:
    with pytest.raises(InvalidInput, match="'math' cannot score row a: math needs an answer"):
        await score(scorer, _prompts(ground_truth=None), _completions(), _inputs(RuleReward(name="math")))


async def test_many_completions_are_shared_among_processes_and_come_back_in_order(scorer: Scorer) -> None:
    prompts = [Prompt(row_uid="a", token_ids=(1,), text="?", ground_truth="150")]
    completions = [CompletionText(SampleId("a", sample), f"\\boxed{{{sample}}}", (1,)) for sample in range(200)]
    scores = await score(scorer, prompts, completions, _inputs(RuleReward(name="math"), ("a",), num_samples=200))
    assert [item.sample for item in scores.scores if item.reward] == [150]
    assert [item.answer for item in scores.scores] == [str(sample) for sample in range(200)]


@pytest.mark.parametrize("prefix", ["", "async "])
async def test_a_function_of_an_installed_module(scorer: Scorer, tmp_path: Path, prefix: str) -> None:
    package = tmp_path / "installed" / "my_rewards"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "short.py").write_text(f"{prefix}def score(completions, **columns): return [1.0 / len(completions)] * 2")
    environ = os.environ | {"PYTHONPATH": str(package.parent)}
    own = Scorer(roots=[], environ=environ, allowed_hosts=(), secrets_folder=tmp_path)
    try:
        inputs = _inputs(FunctionReward(path="my_rewards.short", name="score", source="module"))
        scores = await score(own, _prompts(), _completions(), inputs)
        assert [item.reward_parts for item in scores.scores] == [{"score": 0.5}] * 4
        for path, name, reason in (
            ("my_rewards.long", "score", "No module named 'my_rewards.long'"),
            ("my_rewards.short", "scor", "did you mean 'score'"),
            ("my_rewards/short.py", "score", "is not a dotted name"),
        ):
            inputs = _inputs(FunctionReward(path=path, name=name, source="module"))
            with pytest.raises(InvalidInput, match=reason):
                await score(own, _prompts(), _completions(), inputs)
    finally:
        await own.close()


async def test_a_remote_reward_is_refused_where_no_host_is_allowed(scorer: Scorer) -> None:
    with pytest.raises(InvalidInput, match="RLHFLESS_REWARD_ALLOWED_HOSTS"):
        await score(scorer, _prompts(), _completions(), _inputs(RemoteReward(url="http://127.0.0.1:9/")))


async def test_a_program_is_scored_by_its_tests(scorer: Scorer) -> None:
    prompts = _prompts("a", ground_truth='{"inputs": ["2"], "outputs": ["4"]}')
    completions = [
        CompletionText(SampleId("a", sample), f"print(int(input()) {operator} 3)", (1,))
        for sample, operator in enumerate(["+", "^", "*"])
    ]
    scores = await score(scorer, prompts, completions, _inputs(RuleReward(name="code"), ("a",), num_samples=3))
    assert [item.reward_parts for item in scores.scores] == [{"code": 0.0}, {"code": 0.0}, {"code": 0.0}]
    right = [CompletionText(SampleId("a", 0), "```python\nprint(int(input()) ** 2)\n```", (1,))]
    scores = await score(scorer, prompts, right, _inputs(RuleReward(name="code"), ("a",), num_samples=1))
    assert [item.reward_parts for item in scores.scores] == [{"code": 1.0}]
