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
from shared.contracts.errors import InvalidInput, RewardFailed
from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import FunctionReward, RewardInputs, RuleReward, Scores

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
