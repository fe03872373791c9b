"""Letters."""

import time

import pytest

from functions.reward.rules.base import BadGroundTruth
from functions.reward.rules.multiple_choice import MultipleChoice
from shared.contracts.reward import MultipleChoiceParameters

RULE = MultipleChoice(MultipleChoiceParameters())


@pytest.mark.parametrize(
    ("completion", "choice"),
    [
        ("Answer: C", "C"),
        ("the answer is (C).", "C"),
        ("I like A, but the answer is **C**", "C"),
        ("\\boxed{C}", "C"),
        ("the correct answer is: $\\boxed{\\text{C}}$", "C"),
        ("Option C.", "C"),
        (" C ", "C"),
        ("(C).", "C"),
        ("**C**", "C"),
        ("Answer: A. No, answer: D", "D"),
        ("Answer: Cat", None),
        ("A B C D", None),
        ("A vitamin", None),
        ("c", None),
        ("Answer: Z", None),
        ("", None),
    ],
)
def test_the_last_choice_counts(completion: str, choice: str | None) -> None:
    assert RULE.choice(completion) == choice


def test_the_reward_is_of_the_right_letter_alone() -> None:
    for truth in ("C", "(C)", " C. "):
        assert RULE("Answer: C", truth, "", {}).reward == 1.0
        assert RULE("Answer: D", truth, "", {}).reward == 0.0
    assert RULE("Answer: D", "C", "", {}).answer == "D"


@pytest.mark.parametrize("truth", [None, "", "c", "CD", "Z"])
def test_a_ground_truth_that_is_no_letter_is_refused(truth: str | None) -> None:
    with pytest.raises(BadGroundTruth, match="one of the letters ABCDEFGHIJ"):
        RULE("C", truth, "", {})


def test_the_letters_can_be_chosen() -> None:
    assert MultipleChoice(MultipleChoiceParameters(letters="XY")).choice("Answer: Y") == "Y"


@pytest.mark.parametrize("filler", [" ", "answer ", "((((", "\\boxed{ "])
def test_no_text_takes_for_ever(filler: str) -> None:
    began = time.process_time()
    RULE.choice("answer" + filler * 200_000)
    assert time.process_time() - began < 30
