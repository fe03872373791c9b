"""The order of rows: every row once per epoch, and the same order for whoever asks again."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runs.data.sampler import Draw, Sampler


def sampler(num_rows: int, batch_size: int, *, seed: int = 42, shuffle: bool = True) -> Sampler:
    return Sampler(num_rows=num_rows, batch_size=batch_size, seed=seed, shuffle=shuffle)


@given(num_rows=st.integers(1, 40), batch_size=st.integers(1, 60), num_steps=st.integers(1, 8), shuffle=st.booleans())
def test_every_row_is_used_once_per_epoch(num_rows: int, batch_size: int, num_steps: int, shuffle: bool) -> None:
    order = sampler(num_rows, batch_size, shuffle=shuffle)
    draws = [draw for step in range(num_steps) for draw in order.batch(step)]
    assert len(draws) == num_steps * batch_size
    assert len(set(draws)) == len(draws)
    complete, _ = divmod(len(draws), num_rows)
    for epoch in range(complete):
        assert sorted(draw.row for draw in draws if draw.epoch == epoch) == list(range(num_rows))
    assert [draw.epoch for draw in draws] == sorted(draw.epoch for draw in draws)


def test_a_batch_runs_over_the_end_of_an_epoch() -> None:
    epochs = Counter(draw.epoch for draw in sampler(10, 4).batch(2))
    assert epochs == {0: 2, 1: 2}


def test_a_batch_larger_than_the_dataset_draws_rows_of_later_epochs() -> None:
    batch = sampler(3, 8).batch(0)
    assert Counter(draw.epoch for draw in batch) == {0: 3, 1: 3, 2: 2}


@given(num_rows=st.integers(1, 30), cursor=st.integers(0, 100), cut=st.integers(0, 20), count=st.integers(0, 20))
def test_going_on_at_a_cursor_is_the_same_as_never_stopping(num_rows: int, cursor: int, cut: int, count: int) -> None:
    order = sampler(num_rows, 4)
    whole = order.draws(cursor, cut + count)
    assert order.draws(cursor, cut) + sampler(num_rows, 4).draws(cursor + cut, count) == whole


def test_the_cursor_of_a_step_is_where_its_batch_starts() -> None:
    order = sampler(10, 4)
    assert order.draws(order.cursor(3), 4) == order.batch(3)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    def rows(seed: int, epoch: int) -> list[int]:
        return [draw.row for draw in sampler(50, 50, seed=seed).batch(epoch)]

    orders = [rows(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert list(range(50)) not in orders


def test_without_shuffling_rows_come_in_file_order() -> None:
    assert sampler(3, 4, shuffle=False).batch(0) == (Draw(0, 0), Draw(1, 0), Draw(2, 0), Draw(0, 1))


def test_the_order_never_changes() -> None:
    """Runs that were started long ago go on in the order they began with."""
    assert [draw.row for draw in sampler(8, 8).batch(0)] == [2, 7, 6, 5, 4, 1, 3, 0]


@pytest.mark.parametrize(("num_rows", "batch_size"), [(0, 4), (4, 0)])
def test_nothing_has_no_order(num_rows: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match="no order"):
        sampler(num_rows, batch_size)
