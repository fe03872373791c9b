import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runs.data.dataset import Dataset
from controller.runs.data.position import DataPosition, draws_of
from controller.runs.data.sampler import Draw, Sampler
from controller.runs.errors import RunFailed
from shared.contracts.prompt import Prompt

SAMPLER = Sampler(num_rows=5, batch_size=2, seed=1, shuffle=True)
DATASET = Dataset(
    split="train",
    prompts=tuple(Prompt(row_uid=f"train-{row:06d}", token_ids=(1 + row,), text="p") for row in range(5)),
    num_filtered=0,
    note="",
)


def draw(position: DataPosition, count: int) -> tuple[list[str], DataPosition]:
    """Uids of the next rows, and the position behind them."""
    prompts, rest = position.draw(DATASET, SAMPLER, count)
    return [prompt.row_uid for prompt in prompts], rest


def in_order(count: int) -> list[str]:
    """Uids of the first rows of the sampler."""
    return [prompt.row_uid for prompt in DATASET.take(SAMPLER.draws(0, count))]


def test_rows_that_were_given_back_go_first_and_in_order() -> None:
    drawn, rest = draw(DataPosition(0), 4)
    assert drawn == in_order(4)
    again, rest = draw(rest.with_leftover(drawn[1:3]), 3)
    assert again == [*drawn[1:3], in_order(5)[4]]
    assert rest == DataPosition(5)


def test_fewer_rows_than_wait_leave_the_others_waiting() -> None:
    drawn, rest = draw(DataPosition(7, ("train-000000.e0", "train-000001.e0", "train-000002.e0")), 2)
    assert drawn == ["train-000000.e0", "train-000001.e0"]
    assert rest == DataPosition(7, ("train-000002.e0",))


@given(st.lists(st.tuples(st.integers(1, 6), st.sets(st.integers(0, 5))), max_size=30))
def test_every_row_of_every_epoch_is_used_once_whatever_is_given_back(rounds: list[tuple[int, set[int]]]) -> None:
    position, used = DataPosition(0), []
    for count, back in rounds:
        drawn, position = draw(position, count)
        used += [row for place, row in enumerate(drawn) if place not in back]
        position = position.with_leftover([row for place, row in enumerate(drawn) if place in back])
    assert len(set(used)) == len(used)
    assert {*used, *position.leftover} == set(in_order(position.cursor))


def test_a_uid_names_its_draw() -> None:
    draws = (Draw(1, 12), Draw(0, 0))
    assert draws_of([prompt.row_uid for prompt in DATASET.take(draws)], DATASET) == draws
    with pytest.raises(RunFailed, match="row train-000009 waits to be drawn"):
        draws_of(["train-000009.e0"], DATASET)
