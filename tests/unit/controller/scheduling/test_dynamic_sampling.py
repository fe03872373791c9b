import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.dynamic_sampling import rows_to_draw


@pytest.mark.parametrize(
    ("useful", "drawn", "rows"),
    [
        (0, 0, 32),  # nothing is known yet
        (16, 32, 32),  # half was useful, half is missing
        (24, 32, 11),  # 8 missing at three in four
        (31, 64, 3),
        (0, 32, 32),
        (1, 32, 32),  # never more than a batch
        (32, 40, 0),
        (33, 40, 0),
    ],
)
def test_a_round_draws_what_the_useful_share_makes_necessary(useful: int, drawn: int, rows: int) -> None:
    assert rows_to_draw(num_wanted=32, num_useful=useful, num_drawn=drawn) == rows


@given(wanted=st.integers(1, 500), useful=st.integers(0, 600), more=st.integers(0, 600))
def test_it_draws_at_least_what_is_missing_and_at_most_a_batch(wanted: int, useful: int, more: int) -> None:
    rows = rows_to_draw(num_wanted=wanted, num_useful=useful, num_drawn=useful + more)
    assert max(0, wanted - useful) <= rows <= wanted
