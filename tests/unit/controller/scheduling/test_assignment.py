"""Which actor samples what."""

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.assignment import assign_in_order


def test_the_first_actors_take_what_is_left_over() -> None:
    assert assign_in_order("abcdefg", 3) == (("a", "b", "c"), ("d", "e"), ("f", "g"))


def test_more_actors_than_items_leaves_some_without() -> None:
    assert assign_in_order("ab", 3) == (("a",), ("b",), ())


@given(items=st.lists(st.integers()), num_actors=st.integers(1, 40))
def test_nothing_is_lost_doubled_or_reordered_and_no_actor_has_much_more(items: list[int], num_actors: int) -> None:
    parts = assign_in_order(items, num_actors)
    assert len(parts) == num_actors
    assert [item for part in parts for item in part] == items
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
