"""Quantities and durations as Kubernetes and Go spell them."""

from decimal import Decimal

import pytest

from controller.platforms.local.quantities import parse_duration_s, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"),
        ("2", "2"),
        ("0.25", "0.25"),
        ("2Gi", 2**31),
        ("512Mi", 2**29),
        ("1G", 10**9),
        ("1e3", 1000),
    ],
)
def test_quantity(text: str, value: str | int) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "2gi", "-1", "1.2.3", "two", "5 m"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1m30s", 90), ("500ms", 0.5), ("1h", 3600), ("0", 0), ("1.5s", 1.5)]
)
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "30 s", "-5s", "1d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_s(text)
