import pytest

from functions.learner.ranks.sharing import share_of, spread_out
from tests.unit.functions.learner.builders import ragged_rows


def test_a_round_is_one_micro_batch_each_and_the_rest_keep_up() -> None:
    shares = [share_of([[4, 5], [6]], rank) for rank in range(4)]

    assert [(share.indices, share.counts) for share in shares] == [
        ([4, 5], True),
        ([6], True),
        ([4], False),
        ([4], False),
    ]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8, 100])
def test_a_mini_batch_is_cut_until_every_rank_has_a_part_of_it(num_ranks: int) -> None:
    rows = ragged_rows()
    whole = [list(range(2, 10))]

    parts = spread_out(rows, whole, 10_000, num_ranks, share_prompts=True)

    assert sorted(index for part in parts for index in part) == whole[0]
    assert min(num_ranks, 8) <= len(parts) <= 8
    assert num_ranks > 1 or parts == whole


def test_a_mini_batch_of_enough_parts_stays_as_it_is() -> None:
    parts = [[3], [1, 2], [0]]
    assert spread_out(ragged_rows(), parts, 1, 3, share_prompts=True) is parts
