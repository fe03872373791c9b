"""How much of a prefill is the same work over again."""

import pytest

from controller.scheduling.deduplication import deduplicate

DISTINCT = [[number, 1, 2, 3] for number in range(6)]


@pytest.mark.parametrize(("group_size", "saved"), [(1, 0.0), (3, 2 / 3), (8, 7 / 8)])
def test_of_n_samples_all_but_one_prefill_is_saved(group_size: int, saved: float) -> None:
    assert deduplicate(DISTINCT, group_size=group_size, max_batch=64).saved_share == pytest.approx(saved)


def test_a_beginning_that_all_share_is_computed_once() -> None:
    found = deduplicate([[7] * 90 + [number] * 10 for number in range(4)], group_size=2, max_batch=64)
    assert (found.num_repeated_tokens, found.num_prompt_tokens, found.num_tree_tokens) == (800, 400, 130)
    assert (found.prefix_tokens, found.num_prefixes, found.num_rounds) == (100, 4, 1)


def test_more_prompts_than_fit_at_once_take_rounds() -> None:
    found = deduplicate([[7, 7, number] for number in range(5)], group_size=1, max_batch=2)
    assert (found.prefix_tokens, found.num_prefixes, found.num_rounds) == (2, 1, 3)


def test_no_prompts_save_nothing() -> None:
    assert deduplicate([], group_size=4, max_batch=2).saved_share == 0.0
