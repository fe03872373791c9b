"""GSM8K's reward: the number behind the last mark."""

import pytest

from scripts.examples.gsm8k.reward import compute_score, final_answer

WORKED = "He has 12*100 = <<12*100=1200>>1200.\n#### 1,200"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (WORKED, "1200"),
        ("#### 42", "42"),
        ("####42", "42"),
        ("#### 41, no\n#### -42.", "-42"),
        ("#### 0.5", "0.5"),
        ("42", None),
        ("#### forty-two", None),
        ("#### .", None),
        ("", None),
    ],
)
def test_the_final_answer_is_the_number_behind_the_last_mark(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize("ground_truth", ["1200", "1,200", WORKED])
def test_only_the_right_final_answer_earns(ground_truth: str) -> None:
    assert compute_score("openai/gsm8k", "So it is 1200.\n#### 1,200", ground_truth) == 1.0
    for completion in ("1200", "#### 12000", "#### 1200 or\n#### 1201", "####", ""):
        assert compute_score("openai/gsm8k", completion, ground_truth) == 0.0
