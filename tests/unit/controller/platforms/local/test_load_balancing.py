"""Which replica gets a request."""

from random import Random

import pytest

from controller.platforms.local.load_balancing import first_available, least_requests, round_robin, two_choices


@pytest.mark.parametrize(("in_flight", "chosen"), [([2, 1, 0], 1), ([0, 0], 0), ([2, 2], None), ([], None)])
def test_first_available(in_flight: list[int], chosen: int | None) -> None:
    assert first_available(in_flight, 2) == chosen


@pytest.mark.parametrize(
    ("in_flight", "start", "chosen"),
    [([0, 0, 0], 1, 1), ([0, 0, 0], 3, 0), ([0, 4, 0], 1, 2), ([0, 4, 4], 1, 0), ([4, 4], 0, None), ([], 5, None)],
)
def test_round_robin(in_flight: list[int], start: int, chosen: int | None) -> None:
    assert round_robin(in_flight, 4, start) == chosen


def test_two_choices_never_take_the_most_loaded() -> None:
    noise = Random(1)
    chosen = [two_choices([5, 9, 0, 7], noise) for _ in range(200)]
    assert set(chosen) == {0, 2, 3}
    assert chosen.count(2) > chosen.count(0) > chosen.count(3)
    assert two_choices([8], noise) == 0
    assert two_choices([], noise) is None


def test_least_requests() -> None:
    assert least_requests([3, 1, 1]) == 1
    assert least_requests([]) is None
