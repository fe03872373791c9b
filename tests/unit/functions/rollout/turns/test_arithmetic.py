"""Arithmetic as Python computes it, exactly, and nothing else."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rollout.turns.arithmetic import MAX_CHARACTERS, NoArithmetic, evaluate, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12*7", "84"),
        (" 1 + 2 * 3 ", "7"),
        ("(1+2)*3", "9"),
        ("10-4-3", "3"),
        ("-2**2", "-4"),
        ("2**3**2", "512"),
        ("2^10", "1024"),
        ("2**-1", "0.5"),
        ("--3", "3"),
        ("0.1+0.2", "0.3"),
        ("1/3", "0.3333333333"),
        ("1/3*3", "1"),
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("-7%3", "2"),
        (".5*4.", "2"),
        ("10**30", "1" + 30 * "0"),
    ],
)
def test_values(text: str, value: str) -> None:
    assert shown(evaluate(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1+",
        "*2",
        "(1",
        "1)",
        "()",
        "1 2",
        "2(3)",
        "1/0",
        "1//0",
        "1%0",
        "0**-1",
        "2**0.5",
        "2**201",
        "9**9**9",
        "10**30*10",
        "10**-31",
        "1" + 40 * "0",
        "abs(1)",
        "__import__('os')",
        "x",
        "1_000",
        "1e9",
        "\u0661+\u0661",
        ".",
        "1=1",
        "(" * 100 + "1" + ")" * 100,
        "-" * 100 + "1",
        "2**" * 60 + "1",
        "1+" * MAX_CHARACTERS + "1",
    ],
)
def test_what_is_no_arithmetic(text: str) -> None:
    with pytest.raises(NoArithmetic):
        evaluate(text)


NUMBERS = st.integers(0, 30).map(str)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_precedence_is_pythons(text: str) -> None:
    exact = "".join(f"Fraction({part})" if part.isdigit() else part for part in _split_numbers(text))
    try:
        expected = eval(exact, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(NoArithmetic):
            evaluate(text)
    else:
        assert evaluate(text) == expected


def _split_numbers(text: str) -> list[str]:
    parts: list[str] = []
    for character in text:
        if parts and parts[-1].isdigit() and character.isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    with contextlib.suppress(NoArithmetic):
        assert shown(evaluate(text))
