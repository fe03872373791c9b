import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.text import duration, money, number, printable, size


@given(st.text())
def test_nothing_that_a_terminal_acts_upon_is_printed(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(char.isprintable() or char in "\n\t" for char in shown)


def test_text_is_left_as_it_is() -> None:
    assert printable("grüße ☃ [bold]\n\tx") == "grüße ☃ [bold]\n\tx"
    assert printable("\x1b[2Jx") == "�[2Jx"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (75, "1 min 15 s"),
        (3600, "1 h 00 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("num_bytes", "said"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**52, "4096.0 TiB")],
)
def test_sizes(num_bytes: int, said: str) -> None:
    assert size(num_bytes) == said


def test_money() -> None:
    assert [money(usd) for usd in (0.0, 0.0001234, 12.345)] == ["0.000000", "0.000123", "12.35"]


def test_what_is_not_known_is_a_dash() -> None:
    assert (number(None), number(0.5)) == ("–", "0.500")
