import math

import pytest

from shared.training.schedule import learning_rate
from tests.unit.functions.learner.builders import make_config


def test_constant_is_constant() -> None:
    config = make_config(lr=0.5)

    assert [learning_rate(config, step) for step in (0, 7, 10**6)] == [0.5] * 3


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warmup_rises_linearly_and_ends_at_the_full_rate(schedule: str) -> None:
    config = make_config(lr=0.8, lr_schedule=schedule, warmup_steps=4, total_steps=100)

    assert [learning_rate(config, step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])


def test_linear_decay_goes_to_the_lowest_rate_and_stays() -> None:
    config = make_config(lr=1.0, lr_schedule="linear", total_steps=10, min_lr_ratio=0.1)

    assert [learning_rate(config, step) for step in (0, 5, 10, 99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_cosine_decay_follows_half_a_cosine() -> None:
    config = make_config(lr=2.0, lr_schedule="cosine", warmup_steps=2, total_steps=10, min_lr_ratio=0.25)

    rates = [learning_rate(config, step) for step in (2, 4, 6, 10, 99)]

    quarter = 2.0 * (0.25 + 0.75 * (1 + math.cos(math.pi / 4)) / 2)
    assert rates == pytest.approx([2.0, quarter, 1.25, 0.5, 0.5])
