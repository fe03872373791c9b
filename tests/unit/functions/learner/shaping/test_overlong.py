import pytest

from functions.learner.credit_config import CreditConfig
from functions.learner.shaping.overlong import overlong_penalties
from shared.training.errors import InvalidTrainingConfig
from tests.unit.functions.learner.builders import make_row


@pytest.mark.parametrize(
    ("length", "penalty"), [(1, 0.0), (6, 0.0), (7, 0.5), (8, 1.0), (9, 1.5), (10, 2.0), (30, 2.0)]
)
def test_the_penalty_rises_over_the_buffer(length: int, penalty: float) -> None:
    config = CreditConfig(overlong_len=4, overlong_penalty_factor=2.0, max_completion_tokens=10)

    assert overlong_penalties([make_row(completion=range(length))], config) == [penalty]


def test_without_a_buffer_nothing_is_taken_off() -> None:
    rows = [make_row("a", s, completion=range(9)) for s in range(3)]

    assert overlong_penalties(rows, CreditConfig(max_completion_tokens=9)) == [0.0] * 3


@pytest.mark.parametrize("fields", [{}, {"max_completion_tokens": 3}])
def test_a_buffer_needs_a_limit_that_it_fits_into(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidTrainingConfig, match="overlong_len"):
        CreditConfig(overlong_len=4, **fields)
