import math

import pytest
import torch

from functions.learner.correction import rollout_correction
from functions.learner.loss_config import LossConfig

NAN, INF = float("nan"), float("inf")
MASK = torch.tensor([[True, True, False], [True, False, True], [False, False, False]])
LEARNER = torch.tensor([[-1.0, -2.0, NAN], [-0.5, INF, -1.0], [-INF, NAN, 1e6]])
ROLLOUT = torch.tensor([[-1.0, -1.0, 1e6], [-2.5, NAN, -1.5], [NAN, NAN, NAN]])


def test_nothing_is_weighted_unless_asked_for() -> None:
    assert rollout_correction(LEARNER, ROLLOUT, MASK, LossConfig()) is None


@pytest.mark.parametrize(
    ("level", "first", "second", "num_high"),
    [
        ("token", [1.0, math.exp(-1), 0.0], [2.0, 0.0, math.exp(0.5)], 1),
        ("sequence", [math.exp(-1), math.exp(-1), 0.0], [2.0, 0.0, 2.0], 2),
    ],
)
def test_weights_are_capped_ratios_and_zero_where_masked(
    level: str, first: list[float], second: list[float], num_high: int
) -> None:
    correction = rollout_correction(LEARNER, ROLLOUT, MASK, LossConfig(rollout_is=level, rollout_is_threshold=2.0))

    assert correction is not None
    assert correction.weights.tolist() == [pytest.approx(first), pytest.approx(second), [0.0] * 3]
    assert correction.token_sums["rollout_corr/rollout_is_mean"].item() == pytest.approx(sum(first) + sum(second))
    assert correction.token_sums["rollout_corr/rollout_is_ratio_fraction_high"].item() == num_high


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_have_no_gradient(level: str) -> None:
    learner = torch.tensor([[-1.0]], requires_grad=True)

    correction = rollout_correction(
        learner, torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), LossConfig(rollout_is=level)
    )

    assert correction is not None
    assert not correction.weights.requires_grad


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_equal_policies_weigh_one(level: str) -> None:
    correction = rollout_correction(LEARNER, LEARNER, MASK, LossConfig(rollout_is=level))

    assert correction is not None
    assert torch.equal(correction.weights, MASK.float())
