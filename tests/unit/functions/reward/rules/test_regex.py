"""Formats."""

import pytest
from pydantic import ValidationError

from functions.reward.rules.regex import Regex
from shared.contracts.reward import RegexParameters

THINK = r"<think>.*</think>\s*<answer>(?P<answer>.*)</answer>"


def test_the_whole_completion_has_to_match_or_a_part_of_it() -> None:
    good = "<think>a\nb</think>\n<answer>7</answer>"
    whole = Regex(RegexParameters(pattern=THINK))
    part = Regex(RegexParameters(pattern=THINK, match="search"))
    assert [whole(text, None, "", {}).reward for text in (good, f"x{good}", "7")] == [1.0, 0.0, 0.0]
    assert [part(text, None, "", {}).reward for text in (good, f"x{good}", "7")] == [1.0, 1.0, 0.0]
    assert (whole(good, None, "", {}).answer, whole("7", None, "", {}).answer) == ("7", None)


def test_a_dot_is_a_line_end_unless_asked_otherwise() -> None:
    assert Regex(RegexParameters(pattern="a.b"))("a\nb", None, "", {}).reward == 1.0
    assert Regex(RegexParameters(pattern="a.b", dot_all=False))("a\nb", None, "", {}).reward == 0.0


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="no regular expression"):
        RegexParameters(pattern="(")
