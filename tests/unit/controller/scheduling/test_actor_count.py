"""How many actors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.actor_count import choose_num_actors


@pytest.mark.parametrize(
    ("num_items", "num_threads", "max_actors", "expected"),
    [(32, 2, 8, 2), (1, 2, 8, 1), (32, 16, 8, 8), (32, 1, 8, 1), (0, 4, 8, 1)],
)
def test_one_per_thread_within_items_and_replicas(
    num_items: int, num_threads: int, max_actors: int, expected: int
) -> None:
    assert choose_num_actors(num_items, num_threads, max_actors) == expected


@given(num_items=st.integers(0, 1000), num_threads=st.integers(1, 256), max_actors=st.integers(1, 64))
def test_never_none_and_never_more_than_can_work(num_items: int, num_threads: int, max_actors: int) -> None:
    count = choose_num_actors(num_items, num_threads, max_actors)
    assert 1 <= count <= max(1, min(num_threads, max_actors))
    assert count <= max(1, num_items)
