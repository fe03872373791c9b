"""Which column is which."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runs.data.columns import (
    DATA_SOURCES,
    GROUND_TRUTHS,
    PROMPTS,
    Columns,
    choose_columns,
    value_of,
)
from controller.runs.data.errors import ColumnAmbiguous, ColumnMissing

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
    source_key: str | None = None,
    *,
    needs_ground_truth: bool = False,
) -> Columns:
    return choose_columns(
        row,
        prompt_key=prompt_key,
        answer_key=answer_key,
        source_key=source_key,
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
        ({"prompt": "p", "ground_truth": "4", "answer": "so 4"}, "prompt", "ground_truth", "passed over answer"),
        (VERL | {"solution": "2+2"}, "prompt", "reward_model.ground_truth", "passed over solution"),
        ({"question": "q", "prompt": [{"role": "user"}]}, "prompt", None, "passed over question"),
        ({"question": "q", "prompt": None, "answer": "4", "label": None}, "question", "answer", "verifiers"),
    ],
)
def test_known_columns_are_recognised_and_the_choice_is_told(
    row: dict[str, Any], prompt: str, ground_truth: str | None, named: str
) -> None:
    chosen = choose(row)
    assert (chosen.prompt, chosen.ground_truth) == (prompt, ground_truth)
    assert named in chosen.note


@pytest.mark.parametrize(
    ("row", "words", "key"),
    [
        ({"prompt": "p", "question": "q"}, "the prompt: prompt, question", "data.prompt_key"),
        ({"prompt": [], "question": []}, "the prompt: prompt, question", "data.prompt_key"),
        ({"prompt": "p", "answer": "4", "solution": "2+2=4"}, "the ground truth: answer, solution", "data.answer_key"),
        (VERL | {"ground_truth": "5"}, "reward_model.ground_truth, ground_truth", "data.answer_key"),
    ],
)
def test_nothing_is_guessed_where_several_columns_could_be_meant(row: dict[str, Any], words: str, key: str) -> None:
    with pytest.raises(ColumnAmbiguous) as caught:
        choose(row)
    (problem,) = caught.value.problems
    assert problem.field == "data.train_files"
    assert words in problem.reason
    assert key in problem.suggestion
    keys = {"data.prompt_key": ("question", None), "data.answer_key": (None, "answer")}[key]
    if all(name is None or name in row for name in keys):
        choose(row, *keys)


@pytest.mark.parametrize(
    ("row", "source_key", "source"),
    [
        (VERL, None, "data_source"),
        ({"question": "q", "task": "sums"}, None, "task"),
        ({"question": "q", "task": "sums", "data_source": "gsm8k"}, None, "data_source"),
        ({"question": "q", "task": 3}, None, None),
        ({"question": "q", "task": "sums", "meta": {"set": "x"}}, "meta.set", "meta.set"),
    ],
)
def test_the_data_source_is_recognised_or_named(
    row: dict[str, Any], source_key: str | None, source: str | None
) -> None:
    chosen = choose(row, None, None, source_key)
    assert chosen.data_source == source
    assert (f"data source from {source!r}" in chosen.note) is (source is not None)


KNOWN = [*(name for name in (*PROMPTS, *GROUND_TRUTHS, *DATA_SOURCES) if "." not in name), "reward_model", "level"]
VALUES = st.none() | st.text(max_size=3) | st.just([{"role": "user", "content": "q"}])


@given(st.dictionaries(st.sampled_from(KNOWN), VALUES | st.just({"ground_truth": "4"})))
def test_what_is_chosen_is_there_and_does_not_depend_on_the_order_of_columns(row: dict[str, Any]) -> None:
    def chosen(columns: dict[str, Any]) -> Columns | str:
        try:
            return choose(columns)
        except (ColumnAmbiguous, ColumnMissing) as error:
            return str(error)

    found = chosen(row)
    assert chosen(dict(reversed(row.items()))) == found
    if isinstance(found, Columns):
        assert value_of(row, found.prompt) is not None
        assert found.ground_truth is None or value_of(row, found.ground_truth) is not None
        assert found.ground_truth != found.prompt
        assert repr(found.prompt) in found.note


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
        (("text", "label", "set"), "data.reward_fn_key", "no column 'set'"),
    ],
)
def test_a_missing_column_is_refused_with_what_there_is(keys: tuple[str | None, ...], field: str, words: str) -> None:
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
