"""Which column is which."""

from typing import Any

import pytest

from controller.runs.data.columns import Columns, choose_columns, value_of
from controller.runs.data.errors import ColumnMissing

VERL = {
    "data_source": "gsm8k",
    "prompt": [{"role": "user", "content": "q"}],
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"index": 0},
}


def choose(
    row: dict[str, Any],
    prompt_key: str | None = None,
    answer_key: str | None = None,
    *,
    needs_ground_truth: bool = False,
) -> Columns:
    return choose_columns(
        row,
        prompt_key=prompt_key,
        answer_key=answer_key,
        needs_ground_truth=needs_ground_truth,
        field="data.train_files",
    )


@pytest.mark.parametrize(
    ("row", "prompt", "ground_truth", "named"),
    [
        (VERL, "prompt", "reward_model.ground_truth", "verl"),
        ({"prompt": "p", "reward_spec": {"ground_truth": "4"}}, "prompt", "reward_spec.ground_truth", "SkyRL"),
        ({"prompt": "p", "topic": "x"}, "prompt", None, "no ground truth"),
        ({"prompt": "p", "solution": "4"}, "prompt", "solution", "TRL"),
        ({"question": "q", "answer": "4", "info": {}}, "question", "answer", "verifiers"),
        ({"input": "q", "label": "4"}, "input", "label", "OpenRLHF"),
        ({"question": "q", "answer": "4", "label": "4"}, "question", "answer", "passed over label"),
        ({"question": "q", "prompt": "p"}, "prompt", None, "passed over question"),
    ],
)
def test_known_columns_are_recognised_and_the_choice_is_told(
    row: dict[str, Any], prompt: str, ground_truth: str | None, named: str
) -> None:
    chosen = choose(row)
    assert (chosen.prompt, chosen.ground_truth) == (prompt, ground_truth)
    assert named in chosen.note


def test_explicit_keys_win() -> None:
    row = {"prompt": "p", "answer": "a", "text": "t", "meta": {"final": "f"}}
    chosen = choose(row, "text", "meta.final")
    assert (chosen.prompt, chosen.ground_truth) == ("text", "meta.final")
    assert "data.prompt_key" in chosen.note
    assert "data.answer_key" in chosen.note


def test_one_explicit_key_leaves_the_other_recognised() -> None:
    row = {"prompt": "p", "answer": "a", "text": "t"}
    assert choose(row, "text").ground_truth == "answer"
    assert choose(row, None, "text").prompt == "prompt"


def test_the_prompt_is_never_its_own_ground_truth() -> None:
    assert choose({"answer": "4 = 2 + ?", "label": "2"}, "answer").ground_truth == "label"


@pytest.mark.parametrize(
    ("keys", "field", "words"),
    [
        ((None, None), "data.train_files", "no column is known to hold the prompt; the columns are label, text"),
        (("txt", None), "data.prompt_key", "no column 'txt'"),
        (("text", "answr"), "data.answer_key", "no column 'answr'"),
        (("text", "label.x"), "data.answer_key", "no column 'label.x'"),
    ],
)
def test_a_missing_column_is_refused_with_what_there_is(
    keys: tuple[str | None, str | None], field: str, words: str
) -> None:
    with pytest.raises(ColumnMissing) as caught:
        choose({"text": "t", "label": "4"}, *keys)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert words in problem.reason
    assert problem.suggestion


def test_a_reward_that_needs_a_ground_truth_gets_one() -> None:
    with pytest.raises(ColumnMissing, match=r"data\.answer_key"):
        choose({"prompt": "p"}, needs_ground_truth=True)
    assert choose({"prompt": "p", "gt": "4"}, None, "gt", needs_ground_truth=True).ground_truth == "gt"


def test_a_column_with_dots_in_its_name_goes_before_a_nested_one() -> None:
    assert value_of({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert value_of({"a": {"b.c": 3}}, "a.b.c") == 3
    for name in ("b", "a.c", "a.b.c"):
        with pytest.raises(KeyError):
            value_of({"a": {"b": 2}}, name)
