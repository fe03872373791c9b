"""Cutting a batch into calls."""

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.sharding import COMPLETIONS_PER_CALL, TOKENS_PER_CALL, cut_into_shards


def rows(count: int) -> list[str]:
    return [f"row-{number}" for number in range(count)]


def sizes(count: int, num_samples: int, sequence_tokens: int = 1024) -> list[int]:
    return [
        len(shard) for shard in cut_into_shards(rows(count), num_samples=num_samples, sequence_tokens=sequence_tokens)
    ]


def test_a_batch_of_the_default_size_is_one_call() -> None:
    assert sizes(32, 8) == [32]


def test_completions_count_and_not_rows() -> None:
    assert sizes(512, 1) == [512]
    assert sizes(513, 1) == [512, 1]
    assert sizes(512, 8) == [64] * 8
    assert sizes(100, 16) == [32, 32, 32, 4]


def test_long_completions_make_smaller_calls() -> None:
    assert sizes(64, 8, sequence_tokens=2048) == [64]
    assert sizes(64, 8, sequence_tokens=4096) == [32, 32]
    assert sizes(8, 8, sequence_tokens=2**15) == [4, 4]


def test_a_group_stays_whole_however_large_it_is() -> None:
    assert sizes(3, 4096) == [1, 1, 1]
    assert sizes(2, 8, sequence_tokens=2**21) == [1, 1]


def test_nothing_is_no_call() -> None:
    assert sizes(0, 8) == []


@given(st.integers(1, 600), st.integers(1, 600), st.integers(2, 2**21))
def test_every_row_is_in_one_call_and_calls_are_bounded(count: int, num_samples: int, sequence_tokens: int) -> None:
    shards = cut_into_shards(rows(count), num_samples=num_samples, sequence_tokens=sequence_tokens)
    assert [row for shard in shards for row in shard] == rows(count)
    for shard in shards:
        completions = len(shard) * num_samples
        assert len(shard) == 1 or completions <= COMPLETIONS_PER_CALL
        assert len(shard) == 1 or completions * sequence_tokens <= TOKENS_PER_CALL
