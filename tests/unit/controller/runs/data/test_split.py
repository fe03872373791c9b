"""Held-out rows taken away from training rows: never trained on, and the same ones whenever somebody asks."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.runs.data.dataset import Dataset
from controller.runs.data.errors import DatasetEmpty
from controller.runs.data.split import hold_out, num_shared
from shared.contracts.prompt import Prompt


def dataset(texts: list[str]) -> Dataset:
    prompts = tuple(
        Prompt(row_uid=f"train-{number:06d}", token_ids=tuple(map(ord, text)), text=text)
        for number, text in enumerate(texts)
    )
    return Dataset(split="train", prompts=prompts, num_filtered=3, note="train: rows")


def texts_of(rows: Dataset) -> list[str]:
    return [prompt.text for prompt in rows.prompts]


texts = st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=30)


@given(texts, st.integers(1, 30) | st.floats(0.01, 0.99), st.integers(0, 5))
def test_the_two_are_all_rows_and_share_no_prompt(rows: list[str], share: int | float, seed: int) -> None:
    try:
        train, heldout = hold_out(dataset(rows), share, seed)
    except DatasetEmpty:
        assume(False)
    assert sorted([*texts_of(train), *texts_of(heldout)]) == sorted(rows)
    assert not set(texts_of(train)) & set(texts_of(heldout))
    assert num_shared(train.prompts, heldout.prompts) == 0
    wanted = share if isinstance(share, int) else round(share * len(rows))
    assert 1 <= len(heldout.prompts) <= wanted
    if len(set(rows)) == len(rows):
        assert len(heldout.prompts) == wanted


@given(texts, st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_asking_again_matters(rows: list[str], shuffler: random.Random) -> None:
    assume(len(set(rows)) > 1 and len(rows) > 4)
    shuffled = shuffler.sample(rows, len(rows))
    try:
        first = hold_out(dataset(rows), 3, seed=1)
    except DatasetEmpty:
        assume(False)
    again, other = hold_out(dataset(rows), 3, seed=1), hold_out(dataset(shuffled), 3, seed=1)
    assert first == again
    assert [sorted(texts_of(part)) for part in first] == [sorted(texts_of(part)) for part in other]


def test_rows_keep_their_number_and_the_held_out_ones_get_uids_of_their_own() -> None:
    train, heldout = hold_out(dataset([str(number) for number in range(20)]), 0.25, seed=0)
    assert (train.split, heldout.split) == ("train", "val")
    assert (train.num_filtered, heldout.num_filtered) == (3, 0)
    for part in (train, heldout):
        assert [prompt.row_uid for prompt in part.prompts] == [
            f"{part.split}-{int(prompt.text):06d}" for prompt in part.prompts
        ]
        assert texts_of(part) == sorted(texts_of(part), key=int)


def test_the_choice_is_the_seeds_and_never_changes() -> None:
    """A resumed run, and one on another machine, holds out what it held out before."""
    rows = dataset([str(number) for number in range(20)])
    chosen = [texts_of(hold_out(rows, 4, seed)[1]) for seed in range(3)]
    assert len(set(map(tuple, chosen))) == 3
    assert chosen[0] == ["2", "5", "9", "18"]


def test_what_was_held_out_is_told() -> None:
    train, heldout = hold_out(dataset([str(number) for number in range(20)]), 0.1, seed=7)
    assert heldout.note == "val: 2 of 20 training rows are held out by data.val_split, seed 7"
    assert train.note == "train: rows; 18 are trained on"
    _, heldout = hold_out(dataset(["a", "a", "b", "b", "c", "c"]), 3, seed=0)
    assert "val: 2 of 6 training rows" in heldout.note
    assert "3 asked for" in heldout.note


@pytest.mark.parametrize(
    ("rows", "share", "words"),
    [
        (["a", "b", "c"], 3, "leaves no training row"),
        (["a", "b", "c"], 10, "leaves no training row"),
        (["a", "b", "c"], 0.1, "leaves no held-out row"),
        (["a"], 1, "leaves no training row"),
        (["a", "a", "b", "b"], 1, "more than 1 rows"),
    ],
)
def test_a_split_that_leaves_nothing_is_refused(rows: list[str], share: int | float, words: str) -> None:
    with pytest.raises(DatasetEmpty) as caught:
        hold_out(dataset(rows), share, seed=0)
    (problem,) = caught.value.problems
    assert problem.field == "data.val_split"
    assert words in problem.reason
    assert problem.suggestion


def test_held_out_rows_that_are_trained_on_are_counted() -> None:
    assert num_shared(dataset(["a", "b", "b"]).prompts, dataset(["b", "b", "c"]).prompts) == 2
