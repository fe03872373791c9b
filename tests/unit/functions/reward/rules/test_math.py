"""Mathematical equivalence."""

import sys
import threading

import pytest

from functions.reward.rules.base import BadGroundTruth
from functions.reward.rules.math import Math
from shared.contracts.errors import RewardFailed
from shared.contracts.reward import MathParameters


@pytest.fixture(scope="module")
def math() -> Math:
    return Math(MathParameters())


@pytest.mark.parametrize(
    ("truth", "completion"),
    [
        ("1/2", "The answer is \\boxed{0.5}"),
        ("\\frac{1}{2}", "so $x=\\frac12$"),
        ("42", "answer: 42."),
        ("1,234", "So 1234"),
        ("\\{1,2\\}", "\\boxed{\\{2,1\\}}"),
        ("x^2+1", "$1+x^2$"),
        ("$5$", "5"),
        ("\\boxed{5}", "5"),
        ("-3", "it is -3"),
        ("50%", "$0.5$"),
        ("sqrt(2)", "$\\sqrt{2}$"),
        ("3", "Working: 1+2.\n#### 3"),
        ("48/2=24, so 24+48=<<24+48=72>>72\n#### 72", "\\boxed{72}"),
    ],
)
def test_equal_answers(math: Math, truth: str, completion: str) -> None:
    assert math(completion, truth, "", {}).reward == 1.0


@pytest.mark.parametrize(
    ("truth", "completion"),
    [
        ("42", "answer: 43"),
        ("7", "no answer"),
        ("7", ""),
        ("3", "\\boxed{4} or \\boxed{3}"),
        ("1", "__import__('os').abort()"),
        ("1", "$__import__('os').abort()$"),
        ("1", "\\boxed{__import__('os').abort()}"),
        ("1", "\\boxed{\\mathrm{exec}('import os; os.abort()')}"),
    ],
)
def test_other_answers_and_what_looks_like_code(math: Math, truth: str, completion: str) -> None:
    assert math(completion, truth, "", {}).reward == 0.0


def test_the_answer_is_kept_for_votes(math: Math) -> None:
    assert math("so \\boxed{\\frac{1}{2}}", "3", "", {}).answer == "\\frac{1}{2}"
    assert math("no answer", "3", "", {}).answer is None


def test_only_boxes_count_on_request() -> None:
    boxed = Math(MathParameters(boxed_only=True))
    assert [boxed(text, "5", "", {}).reward for text in ("it is 5", "$5$", "it is \\boxed{5}")] == [0.0, 0.0, 1.0]


def test_decimals_are_compared_to_the_precision() -> None:
    assert Math(MathParameters(precision=2))("0.334", "0.333", "", {}).reward == 1.0
    assert Math(MathParameters(precision=6))("0.334", "0.333", "", {}).reward == 0.0


@pytest.mark.parametrize("truth", [None, "", "  ", "5 ####"])
def test_a_ground_truth_that_is_no_mathematics_is_refused(math: Math, truth: str | None) -> None:
    with pytest.raises(BadGroundTruth, match="math"):
        math("5", truth, "", {})


def test_it_works_off_the_main_thread(math: Math) -> None:
    rewards: list[float] = []
    thread = threading.Thread(target=lambda: rewards.append(math("\\boxed{0.25}", "1/4", "", {}).reward))
    thread.start()
    thread.join()
    assert rewards == [1.0]


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(RewardFailed, match=r"pip install 'rlhfless\[rewards\]'"):
        Math(MathParameters())
