"""How much of a prefill would be the same work over again."""

import pytest

from controller.scheduling.deduplication import deduplicated
from shared.inference.distinct_prefixes import find_distinct

DISTINCT = [[number, 1, 2, 3] for number in range(6)]


@pytest.mark.parametrize(("group_size", "saved"), [(1, 0.0), (3, 2 / 3), (8, 7 / 8)])
def test_of_n_samples_all_but_one_prefill_is_saved(group_size: int, saved: float) -> None:
    computed = find_distinct(DISTINCT).num_tree_tokens
    found = deduplicated(24, group_size=group_size, num_computed_tokens=computed)
    assert found.saved_share == pytest.approx(saved)
    assert found.num_saved_tokens == 24 * (group_size - 1)


def test_a_beginning_that_all_share_is_computed_once() -> None:
    prompts = [[7] * 90 + [number] * 10 for number in range(4)]
    computed = find_distinct(prompts).num_tree_tokens
    found = deduplicated(400, group_size=2, num_computed_tokens=computed)
    assert (found.num_repeated_tokens, found.num_computed_tokens, found.num_saved_tokens) == (800, 130, 670)


def test_no_prompts_save_nothing() -> None:
    assert deduplicated(0, group_size=4, num_computed_tokens=0).saved_share == 0.0
