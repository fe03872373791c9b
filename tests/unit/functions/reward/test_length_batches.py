"""Batches of like length."""

from hypothesis import given
from hypothesis import strategies as st

from functions.reward.length_batches import length_batches


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_every_sequence_is_in_one_batch_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = length_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert longest * len(batch) <= budget or len(batch) == 1
    flat = [lengths[index] for batch in batches for index in batch]
    assert flat == sorted(flat, reverse=True)


def test_the_order_of_equal_lengths_is_their_own() -> None:
    assert length_batches([2, 3, 2, 3], 6) == [[1, 3], [0, 2]]
    assert length_batches([], 6) == []
