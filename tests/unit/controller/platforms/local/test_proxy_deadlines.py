"""The three limits of a request."""

import pytest

from controller.platforms.local.proxy_deadlines import Deadlines


@pytest.mark.parametrize(
    ("start_s", "idle_s", "expected"), [(0, 0, 400), (60, 0, 160), (0, 20, 120), (60, 20, 120), (900, 900, 400)]
)
def test_the_first_byte_counts_from_the_arrival(start_s: float, idle_s: float, expected: float) -> None:
    deadlines = Deadlines(arrival=100, timeout_s=300, response_start_timeout_s=start_s, idle_timeout_s=idle_s)
    assert deadlines.for_first_byte == expected


@pytest.mark.parametrize(("idle_s", "expected"), [(0, 400), (20, 220), (250, 400)])
def test_after_it_the_whole_request_and_the_silence_count(idle_s: float, expected: float) -> None:
    deadlines = Deadlines(arrival=100, timeout_s=300, response_start_timeout_s=60, idle_timeout_s=idle_s)
    assert deadlines.for_next_byte(200) == expected
