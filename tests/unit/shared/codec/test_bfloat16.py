import numpy as np
import pytest

from shared.codec.bfloat16 import from_bfloat16, to_bfloat16


def test_every_finite_bfloat16_comes_back_as_it_was() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    bits = bits[np.isfinite(from_bfloat16(bits))]
    assert np.array_equal(to_bfloat16(from_bfloat16(bits)), bits)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(1.0, 1.0), (1.00390625, 1.0), (1.01171875, 1.015625), (-1.005859375, -1.0078125), (np.inf, np.inf)],
)
def test_numbers_round_to_the_nearest_and_ties_to_even(number: float, rounded: float) -> None:
    assert from_bfloat16(to_bfloat16(np.array([number], np.float32)))[0] == rounded


def test_what_is_not_a_number_stays_so() -> None:
    payload = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(from_bfloat16(to_bfloat16(payload)))[0]
