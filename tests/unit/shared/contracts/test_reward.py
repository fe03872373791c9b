"""What a reward call may ask for."""

import pytest
from pydantic import ValidationError

from shared.contracts.reward import RewardPart, RuleReward


@pytest.mark.parametrize("weight", [1e308, -1e308, 1.01e6, float("inf"), float("nan")])
def test_a_weight_that_makes_rewards_infinite_is_refused(weight: float) -> None:
    with pytest.raises(ValidationError, match="weight"):
        RewardPart(name="part", weight=weight, reward=RuleReward(name="math"))


@pytest.mark.parametrize("weight", [1e6, -1e6, 0.0, 1e-9])
def test_any_weight_of_use_is_accepted(weight: float) -> None:
    assert RewardPart(name="part", weight=weight, reward=RuleReward(name="math")).weight == weight
