import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.rows import TrainRow
from shared.training.batching import num_tokens, pack_micro_batches, split_mini_batches
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import make_row, ragged_rows


def computed_tokens(rows: Sequence[TrainRow], micro_batch: Sequence[int], share_prompts: bool) -> int:
    """What the model computes for a micro-batch."""
    part = [rows[index] for index in micro_batch]
    if share_prompts:
        prompts = {row.prompt_token_ids.tobytes(): row.prompt_token_ids.size for row in part}
        return sum(prompts.values()) + sum(row.num_tokens - 1 for row in part)
    return len(part) * max(row.prompt_token_ids.size + row.num_tokens - 1 for row in part)


@pytest.mark.parametrize("share_prompts", [True, False])
@given(seed=st.integers(0, 2**32 - 1), max_tokens=st.integers(1, 150))
def test_every_row_is_packed_once_and_within_the_budget(share_prompts: bool, seed: int, max_tokens: int) -> None:
    rows = ragged_rows(num_groups=5, group_size=4, seed=seed)

    plan = pack_micro_batches(rows, range(len(rows)), max_tokens, share_prompts=share_prompts)

    assert sorted(index for micro_batch in plan for index in micro_batch) == list(range(len(rows)))
    for micro_batch in plan:
        assert micro_batch
        assert len(micro_batch) == 1 or computed_tokens(rows, micro_batch, share_prompts) <= max_tokens


@given(seed=st.integers(0, 2**32 - 1))
def test_the_plan_does_not_depend_on_arrival(seed: int) -> None:
    rows = ragged_rows()
    arrived = rows.copy()
    random.Random(seed).shuffle(arrived)

    plans = [
        pack_micro_batches(sort_rows(batch), range(len(rows)), 40, share_prompts=True) for batch in (rows, arrived)
    ]

    assert plans[0] == plans[1]


def test_completions_of_a_prompt_stay_together_where_they_fit() -> None:
    rows = [make_row(uid, s, prompt=(n, n, n), completion=(1, 1)) for n, uid in enumerate("abcd") for s in range(3)]

    plan = pack_micro_batches(rows, range(12), 12, share_prompts=True)

    assert plan == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_prompts_that_cannot_be_shared_are_counted_once_per_row() -> None:
    rows = [make_row("a", sample, prompt=(1, 1, 1), completion=(1, 1)) for sample in range(4)]

    assert pack_micro_batches(rows, range(4), 8, share_prompts=True) == [[0, 1, 2, 3]]
    assert pack_micro_batches(rows, range(4), 8, share_prompts=False) == [[0, 1], [2, 3]]


def test_a_family_that_does_not_fit_is_cut_into_as_few_parts_as_first_fit_finds() -> None:
    lengths = (3, 10, 4, 8)
    rows = [make_row("a", sample, prompt=(1, 1), completion=(1,) * n) for sample, n in enumerate(lengths)]

    assert pack_micro_batches(rows, range(4), 14, share_prompts=True) == [[1, 2], [0, 3]]


def test_small_families_fill_the_room_that_large_ones_leave() -> None:
    sizes = {"a": 2, "b": 9, "c": 2, "d": 9}
    rows = [make_row(uid, 0, prompt=(n,), completion=(1,) * n) for uid, n in sizes.items()]
    rows[2] = make_row("c", 0, prompt=(3,), completion=(1, 1))

    assert pack_micro_batches(rows, range(4), 11, share_prompts=True) == [[0, 1], [2, 3]]


def test_a_row_longer_than_the_budget_is_alone() -> None:
    rows = [make_row("a", 0, completion=(1,) * 30), make_row("a", 1)]

    assert pack_micro_batches(rows, range(2), 10, share_prompts=True) == [[0], [1]]
    assert pack_micro_batches(rows, range(2), 10, share_prompts=False) == [[0], [1]]


def test_without_sharing_similar_lengths_lie_together() -> None:
    """A row of 2 + 9 and one of 9 + 2 tokens have the same length."""
    sizes = [(2, 10), (1, 2), (9, 3), (2, 1)]
    rows = [make_row("a", s, prompt=(s,) * p, completion=(1,) * n) for s, (p, n) in enumerate(sizes)]

    assert pack_micro_batches(rows, range(4), 22, share_prompts=False) == [[0, 2], [1, 3]]


def test_ragged_batches_are_nearly_full() -> None:
    """Of 64 rows of up to 200 tokens in micro-batches of 4,096."""
    rows = ragged_rows(num_groups=16, group_size=4, max_prompt=150, max_completion=150)
    for share_prompts, least in ((True, 0.9), (False, 0.85)):
        plan = pack_micro_batches(rows, range(64), 1024, share_prompts=share_prompts)
        real = sum(computed_tokens(rows, [index], share_prompts=False) for index in range(64))
        if share_prompts:
            real = computed_tokens(rows, range(64), share_prompts=True)
        assert real / sum(computed_tokens(rows, part, share_prompts) for part in plan) > least
        assert len(plan) <= -(-real // 1024) + 1 + (not share_prompts)


def test_mini_batches_are_runs_of_whole_groups() -> None:
    rows = [make_row(uid, sample) for uid in "abcde" for sample in range(2)]
    groups = [(uid, 0) for uid in "abcde"]

    assert split_mini_batches(rows, groups, 2) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert split_mini_batches(rows, groups, 0) == [list(range(10))]


def test_groups_that_are_not_given_are_left_out() -> None:
    rows = [make_row(uid, sample) for uid in "abc" for sample in range(2)]

    assert split_mini_batches(rows, [("a", 0), ("c", 0)], 1) == [[0, 1], [4, 5]]
    assert split_mini_batches(rows, [], 2) == []


def test_a_prompt_counts_once() -> None:
    rows = [make_row("a", s, prompt=(1, 2, 3), completion=(4,) * n) for s, n in enumerate((2, 5))]
    rows.append(make_row("b", prompt=(1, 2, 4), completion=(4,)))

    assert [num_tokens(rows, indices) for indices in ([0], [0, 1], [0, 2])] == [5, 10, 9]
