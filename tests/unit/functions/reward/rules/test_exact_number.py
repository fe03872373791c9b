"""The demo's verifier: nothing but the exact number after the last mark earns the reward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.reward.rules.base import BadGroundTruth
from functions.reward.rules.exact_number import exact_number

SCRATCHPAD = "6+8+0=14,6+5+1=12,9+3+1=13"
plain_numbers = st.from_regex(r"[+-]?[0-9]{1,6}(\.[0-9]{1,3})?", fullmatch=True)


def _reward(completion: str, ground_truth: str | None = "1324") -> float:
    return exact_number(completion, ground_truth, "966+358:", {}).reward


@pytest.mark.parametrize("completion", [f"{SCRATCHPAD}#1324", "#1324", "#13#1324", "nonsense\n#1324"])
def test_the_exact_number_after_the_last_mark_earns_one(completion: str) -> None:
    assert _reward(completion) == 1.0


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "#",
        "1324",
        f"{SCRATCHPAD}#",
        f"{SCRATCHPAD}#1325",
        "#01324",
        "#+1324",
        "#-1324",
        "#1324.0",
        "#1,324",
        "# 1324",
        "#1324 ",
        "#1324\n",
        "#13241",
        "#1324#",
        "#1324#1325",
        "#1324,6",
        "#1324<eos>",
        "#\u0661\u0663\u0662\u0664",
        "\uff031324",
        "#\uff11\uff13\uff12\uff14",
    ],
)
def test_everything_else_earns_nothing(completion: str) -> None:
    assert _reward(completion) == 0.0


@pytest.mark.parametrize(
    "ground_truth", [None, "", " ", "1324 ", "\n1324", "1,324", "#1324", "1324\n", "x", "\u0661", "-"]
)
def test_a_ground_truth_that_is_no_plain_number_is_refused_not_scored(ground_truth: str | None) -> None:
    with pytest.raises(BadGroundTruth, match="plain number"):
        _reward(f"#{ground_truth}", ground_truth)


@given(plain_numbers, st.text())
def test_any_plain_number_is_found_after_any_text(number: str, before: str) -> None:
    assert _reward(f"{before}#{number}", number) == 1.0


@given(plain_numbers, st.text(), st.text(min_size=1))
def test_anything_after_the_number_costs_the_reward(number: str, before: str, after: str) -> None:
    expected = 1.0 if after.endswith(f"#{number}") else 0.0
    assert _reward(f"{before}#{number}{after}", number) == expected


@given(plain_numbers, st.text())
def test_the_reward_is_one_exactly_if_the_last_field_is_the_number(number: str, completion: str) -> None:
    fields = completion.split("#")
    assert _reward(completion, number) == float(len(fields) > 1 and fields[-1] == number)
