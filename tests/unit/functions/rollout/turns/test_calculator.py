"""The calculator answers what ends with its call, and tells the model of mistakes in words."""

import pytest

from functions.rollout.turns.calculator import ERROR, Calculator
from functions.rollout.turns.environment import Turn


def answer(text: str, stop: str | None = "</calc>") -> str | None:
    return Calculator().answer(Turn(text=text, token_ids=(), stop=stop))


@pytest.mark.parametrize(
    ("text", "inserted"),
    [
        ("<calc>12*7</calc>", "<result>84</result>"),
        ("so <calc> 1/4 </calc>", "<result>0.25</result>"),
        # The token that completes the call may bring more.
        ("<calc>12*7</calc>\n", "<result>84</result>"),
        ("<calc>1</calc> <calc>2</calc>", "<result>2</result>"),
        ("<calc>1+<calc>2</calc>", "<result>2</result>"),
        ("<calc></calc>", ERROR),
        ("<calc>1/0</calc>", ERROR),
        ("<calc>12*seven</calc>", ERROR),
        ("12*7</calc>", ERROR),
    ],
)
def test_answers(text: str, inserted: str) -> None:
    assert answer(text) == inserted
    assert Calculator().is_error(inserted) == (inserted == ERROR)


@pytest.mark.parametrize("stop", [None, "###"])
def test_what_ended_otherwise_is_no_question(stop: str | None) -> None:
    assert answer("<calc>12*7</calc> is it<eos>", stop) is None
