"""Chained block hashes: equal exactly where sequences begin alike."""

from hypothesis import given
from hypothesis import strategies as st

from shared.inference.block_hash import BLOCK_TOKENS, Block, blocks_of

TOKENS = st.lists(st.integers(0, 3), max_size=3 * BLOCK_TOKENS + 5)


def test_a_sequence_is_cut_into_whole_blocks_and_a_rest() -> None:
    blocks = blocks_of(range(2 * BLOCK_TOKENS + 3))
    assert [(block.start, block.num_tokens, block.end) for block in blocks] == [
        (0, BLOCK_TOKENS, BLOCK_TOKENS),
        (BLOCK_TOKENS, BLOCK_TOKENS, 2 * BLOCK_TOKENS),
        (2 * BLOCK_TOKENS, 3, 2 * BLOCK_TOKENS + 3),
    ]
    assert blocks_of(()) == ()


@given(TOKENS, TOKENS)
def test_blocks_are_equal_exactly_where_all_tokens_up_to_their_end_are(first: list[int], second: list[int]) -> None:
    for one, other in zip(blocks_of(first), blocks_of(second), strict=False):
        alike = one.end == other.end and first[: one.end] == second[: other.end]
        assert (one.hash == other.hash) == alike


def test_a_block_after_other_tokens_is_another_block() -> None:
    one, other = blocks_of([1] * BLOCK_TOKENS + [7] * 9), blocks_of([2] * BLOCK_TOKENS + [7] * 9)
    assert one[1].hash != other[1].hash


def test_a_hash_is_the_same_in_every_process_and_build() -> None:
    """Functions of two builds share a store."""
    assert blocks_of((1, 2, 3)) == (Block("e2e2033ae7e19d680599d4eb0a1359a2b48ec5baac75066c317fbf85159c54ef", 0, 3),)


def test_a_rest_is_no_beginning_of_a_block() -> None:
    whole, rest = blocks_of([7] * BLOCK_TOKENS)[0], blocks_of([7] * (BLOCK_TOKENS - 1))[0]
    assert whole.hash != rest.hash
