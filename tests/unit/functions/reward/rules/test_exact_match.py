"""Text equality up to surrounding white space."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.reward.rules.base import BadGroundTruth
from functions.reward.rules.exact_match import exact_match

white_space = st.text(alphabet=" \t\n")
words = st.text(min_size=1).filter(str.strip)


def _reward(completion: str, ground_truth: str | None) -> float:
    return exact_match(completion, ground_truth, "Which?", {}).reward


@given(words, white_space, white_space)
def test_surrounding_white_space_does_not_matter(text: str, before: str, after: str) -> None:
    assert _reward(before + text + after, text) == 1.0
    assert _reward(text, before + text + after) == 1.0


@given(words, st.text())
def test_another_text_earns_nothing(ground_truth: str, completion: str) -> None:
    assert _reward(completion, ground_truth) == float(completion.strip() == ground_truth.strip())


@pytest.mark.parametrize(("completion", "ground_truth"), [("a  b", "a b"), ("A", "a"), ("", "a"), ("a", "ab")])
def test_case_and_inner_white_space_matter(completion: str, ground_truth: str) -> None:
    assert _reward(completion, ground_truth) == 0.0


@pytest.mark.parametrize("ground_truth", [None, "", " \n"])
def test_a_blank_ground_truth_is_refused_since_silence_would_earn_it(ground_truth: str | None) -> None:
    with pytest.raises(BadGroundTruth, match="ground truth"):
        _reward("", ground_truth)
