"""reasoning-gym's verifiers, all or nothing. What needs the package itself is skipped where it is not installed."""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.reward.rules import reasoning_gym as rule
from functions.reward.rules.base import BadGroundTruth
from shared.contracts.errors import RewardFailed

Create = Callable[..., Any]
SUM: dict[str, Any] = {"source_dataset": "chain_sum", "source_index": 0, "expression": "12 + 30"}
RUNS_CODE = re.compile(r"\b(eval|exec|parse_expr|sympify|Fraction)\(")


@pytest.fixture(autouse=True)
def fresh_verifiers() -> Iterator[None]:
    rule._verifier.cache_clear()
    yield
    rule._verifier.cache_clear()


@pytest.fixture
def create_dataset() -> Create:
    """reasoning-gym's own factory."""
    create: Create = pytest.importorskip("reasoning_gym").create_dataset
    return create


def reward(completion: str, ground_truth: str | None = "42", **columns: Any) -> float:
    return rule.reasoning_gym(completion, ground_truth, "12 + 30 =", columns or {"metadata": SUM}).reward


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("12 and 30 are\n<answer>\n 42 \n</answer>\nI am sure.", "42"),
        ("<answer>41</answer> no: <answer>42</answer>", "42"),
        ("<answer>41 <answer>42</answer>", "42"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer></answer>", ""),
        ("", None),
        ("42", None),
        ("<answer>42", None),
        ("42</answer>", None),
        ("</answer>42<answer>", None),
        ("<Answer>42</Answer>", None),
    ],
)
def test_the_answer_is_what_the_last_pair_of_tags_holds(completion: str, answer: str | None) -> None:
    assert rule.answer_in(completion) == answer


@given(st.text(), st.text().filter(lambda text: "answer>" not in text))
def test_any_answer_is_found_after_any_text(before: str, answer: str) -> None:
    assert rule.answer_in(f"{before}<answer>{answer}</answer>") == answer.strip()


def test_without_the_package_scoring_fails_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(RewardFailed, match="pip install reasoning-gym"):
        reward("no tags: this would be a 0")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"other": 1}, "needs the entry's metadata"),
        ({"metadata": "chain_sum"}, "needs the entry's metadata"),
        ({"extra_info": {"index": 3}}, "needs the entry's metadata"),
        ({"metadata": {"source_index": 3}}, "metadata.source_dataset"),
        ({"metadata": {"source_dataset": 3}}, "metadata.source_dataset"),
    ],
)
def test_a_row_that_names_no_task_is_refused_not_scored(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(BadGroundTruth, match=why):
        reward("42", **columns)


def test_only_full_marks_count(create_dataset: Create) -> None:
    assert reward("<answer>42</answer>") == 1.0
    assert reward("<answer>42.0</answer>") == 1.0
    for answer in ("41", "1424", "The answer is 42.", "", "12 + 30", "forty-two"):
        assert reward(f"<answer>{answer}</answer>") == 0.0
    assert reward("42") == 0.0


def test_metadata_may_stand_in_extra_info(create_dataset: Create) -> None:
    assert reward("<answer>42</answer>", extra_info={"index": 3, "metadata": SUM}) == 1.0


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("chain_sums", "no task 'chain_sums'"),
        ("countdown", "run the answer as code"),
        ("coin_flip", "unbounded time"),
        ("game_of_life_halting", "accept wrong answers"),
    ],
)
def test_a_task_that_is_unknown_or_whose_verifier_is_not_trusted_is_refused(
    create_dataset: Create, task: str, why: str
) -> None:
    with pytest.raises(BadGroundTruth, match=why):
        reward("no tags: this would be a 0", metadata=SUM | {"source_dataset": task})


@pytest.mark.parametrize(
    ("ground_truth", "task"), [(None, "chain_sum"), ("", "chain_sum"), ("42", "calendar_arithmetic")]
)
def test_a_row_whose_own_answer_gets_no_full_marks_is_refused(
    create_dataset: Create, ground_truth: str | None, task: str
) -> None:
    with pytest.raises(BadGroundTruth, match="answer"):
        reward("<answer>42</answer>", ground_truth, metadata=SUM | {"source_dataset": task})


def test_entries_as_the_package_makes_them_are_scored(create_dataset: Create) -> None:
    for task in ("chain_sum", "products", "gcd", "simple_equations", "letter_counting", "word_sorting", "gsm_symbolic"):
        for made in create_dataset(task, size=4, seed=7):
            entry = json.loads(json.dumps(made))
            truth = entry["answer"]
            assert reward(f"<answer>{truth}</answer>", truth, **entry) == 1.0
            assert reward("<answer>-123456789</answer>", truth, **entry) == 0.0
            assert reward(f"<answer>I say {truth}, maybe</answer>", truth, **entry) == float(task == "gsm_symbolic")


def test_no_trusted_verifier_evaluates_the_answer(create_dataset: Create) -> None:
    factory = pytest.importorskip("reasoning_gym.factory")
    for task in rule.TRUSTED_TASKS:
        assert not RUNS_CODE.search(inspect.getsource(factory.DATASETS[task][0].score_answer)), task
    assert RUNS_CODE.search(inspect.getsource(factory.DATASETS["countdown"][0].score_answer))


@pytest.mark.slow
def test_every_task_that_is_scored_accepts_its_answer_and_no_junk(create_dataset: Create) -> None:
    factory, dataset = pytest.importorskip("reasoning_gym.factory"), pytest.importorskip("reasoning_gym.dataset")
    base = dataset.ProceduralDataset.score_answer
    tasks = [name for name, (kind, _) in factory.DATASETS.items() if kind.score_answer is base]
    for task in (*tasks, *rule.TRUSTED_TASKS):
        entry = json.loads(json.dumps(create_dataset(task, size=1, seed=0)[0]))
        truth = str(entry["answer"])
        assert reward(f"<answer>{truth}</answer>", truth, **entry) == 1.0, task
        for junk in ("", "zq", "1e999999999", "[]", "9" * 5000, '__import__("os")'):
            assert reward(f"<answer>{junk}</answer>", truth, **entry) == 0.0, (task, junk)
