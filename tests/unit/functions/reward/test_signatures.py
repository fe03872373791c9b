"""verl's and TRL's reward functions: recognised, called with their arguments, their results read."""

import functools
import math
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

from functions.reward.signatures import (
    BadResult,
    Job,
    MissingArgument,
    Signature,
    UnknownSignature,
    call_arguments,
    read_result,
    recognise,
)


def verl(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    return 1.0


def trl(prompts: list[str], completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
    return [1.0]


class AsyncReward:
    async def __call__(self, completions: list[str]) -> list[float]:
        return [1.0]


VERL, TRL = recognise(verl), recognise(trl)


def _job(**changes: Any) -> Job:
    job = Job(
        prompt="966+358:",
        messages=None,
        data_source="addition",
        ground_truth="1324",
        columns={"answer": 1324},
        completions=["#1", "#2"],
        completion_ids=[[1], [2]],
        attempts=1,
    )
    return cast(Job, job | changes)


def test_the_form_is_told_by_parameter_names() -> None:
    assert (VERL.form, VERL.is_async, VERL.takes_any) == ("per_completion", False, False)
    assert (TRL.form, TRL.is_async, TRL.takes_any) == ("per_group", False, True)
    assert recognise(lambda completion_ids, **kwargs: []).form == "per_group"
    assert recognise(functools.partial(verl, "addition")).form == "per_completion"


def test_an_async_function_is_recognised_also_as_an_object() -> None:
    async def compute_score(solution_str: str, ground_truth: str) -> float:
        return 0.5

    assert recognise(compute_score).is_async
    assert recognise(functools.partial(compute_score, ground_truth="1")).is_async
    assert recognise(AsyncReward()).is_async


@pytest.mark.parametrize("function", [lambda text: 1.0, lambda **kwargs: 1.0, lambda solution_str, /: 1.0, dict])
def test_another_function_is_refused_with_both_forms(function: Any) -> None:
    with pytest.raises(UnknownSignature, match=r"compute_score\(data_source.* or f\(prompts, completions"):
        recognise(function)


def test_token_ids_are_wanted_only_where_they_can_be_taken() -> None:
    assert TRL.takes_token_ids
    assert not VERL.takes_token_ids
    assert not recognise(lambda completions: []).takes_token_ids


def test_verl_gets_its_four_arguments() -> None:
    assert call_arguments(VERL, _job()) == {
        "data_source": "addition",
        "solution_str": "#1",
        "ground_truth": "1324",
        "extra_info": {"answer": 1324},
    }


def test_verl_gets_the_column_named_extra_info_where_there_is_one() -> None:
    job = _job(columns={"answer": 1, "extra_info": {"index": 7}})
    assert call_arguments(VERL, job)["extra_info"] == {"index": 7}


def test_a_function_without_some_parameters_is_not_given_them() -> None:
    assert call_arguments(recognise(lambda solution_str: 1.0), _job()) == {"solution_str": "#1"}


def test_trl_gets_lists_with_one_entry_for_each_completion() -> None:
    assert call_arguments(TRL, _job()) == {
        "prompts": ["966+358:", "966+358:"],
        "completions": ["#1", "#2"],
        "completion_ids": [[1], [2]],
        "answer": [1324, 1324],
        "ground_truth": ["1324", "1324"],
        "data_source": ["addition", "addition"],
    }


def test_trl_gets_messages_where_the_prompt_has_them() -> None:
    messages = [{"role": "user", "content": "966+358?"}]
    arguments = call_arguments(TRL, _job(messages=messages))
    assert arguments["prompts"] == [messages, messages]
    assert arguments["completions"] == [
        [{"role": "assistant", "content": "#1"}],
        [{"role": "assistant", "content": "#2"}],
    ]


def test_a_columns_own_value_wins_but_never_over_the_completions() -> None:
    arguments = call_arguments(TRL, _job(columns={"answer": 1, "ground_truth": 1324, "completions": "a column"}))
    assert arguments["ground_truth"] == [1324, 1324]
    assert arguments["completions"] == ["#1", "#2"]


def test_a_required_parameter_without_column_is_named() -> None:
    with pytest.raises(MissingArgument, match=r"requires answer, .* there are .*completions.*solution"):
        call_arguments(TRL, _job(columns={"solution": "1"}))
    with pytest.raises(MissingArgument, match="requires judge"):
        call_arguments(recognise(lambda solution_str, judge: 1.0), _job())


@pytest.mark.parametrize("number", [1, 1.0, True, np.float32(1), np.int64(1), np.ones(()), Fraction(1)])
def test_numbers_of_every_kind_are_rewards(number: Any) -> None:
    assert read_result(VERL, number, 1) == [{"reward": 1.0, "parts": {}, "answer": None}]
    assert read_result(TRL, [number, 0], 2)[0] == {"reward": 1.0, "parts": {}, "answer": None}


def test_none_is_not_zero() -> None:
    assert [score["reward"] for score in read_result(TRL, [None, 0.0], 2)] == [None, 0.0]
    assert read_result(VERL, None, 1)[0]["reward"] is None
    assert read_result(VERL, {"score": None}, 1)[0]["reward"] is None


def test_a_dict_gives_its_score_and_its_numbers_as_parts() -> None:
    result = {"score": 0.5, "acc": True, "format": np.float32(0.25), "pred": "1324", "spans": [1, 2]}
    expected = {"reward": 0.5, "parts": {"score": 0.5, "acc": 1.0, "format": 0.25}, "answer": "1324"}
    assert read_result(VERL, result, 1) == [expected]


@pytest.mark.parametrize("rewards", [(1.0, 2.0), np.array([1.0, 2.0])])
def test_any_sequence_of_rewards_is_read(rewards: Any) -> None:
    assert [score["reward"] for score in read_result(TRL, rewards, 2)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("signature", "result", "reason"),
    [
        (VERL, "1.0", "not a number"),
        (VERL, [1.0], "not a number"),
        (VERL, np.array([1.0, 2.0]), "not a number"),
        (VERL, math.nan, "finite"),
        (VERL, math.inf, "finite"),
        (VERL, 10**400, "not a number"),
        (VERL, {"reward": 1.0}, "without 'score'; it has reward"),
        (VERL, {"score": -math.inf}, "its score is -inf"),
        (VERL, {"score": "1"}, "its score is '1'"),
        (VERL, {"score": 1.0, "acc": math.nan}, "its acc is nan"),
        (TRL, 1.0, "instead of a list"),
        (TRL, None, "instead of a list"),
        (TRL, "11", "instead of a list"),
        (TRL, {"score": 1.0}, "instead of a list"),
        (TRL, [1.0], "1 rewards for 2 completions"),
        (TRL, [1.0, 2.0, 3.0], "3 rewards for 2 completions"),
        (TRL, [], "0 rewards for 2 completions"),
        (TRL, [1.0, math.nan], "finite"),
        (TRL, [1.0, "1.0"], "not a number"),
    ],
)
def test_anything_but_one_finite_reward_each_is_refused(signature: Signature, result: Any, reason: str) -> None:
    with pytest.raises(BadResult, match=reason):
        read_result(signature, result, 2 if signature is TRL else 1)
