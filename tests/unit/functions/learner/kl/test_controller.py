import pytest

from functions.learner.credit_config import CreditConfig
from functions.learner.kl.controller import next_kl_coef
from shared.training.errors import InvalidTrainingConfig


def adaptive(**fields: float) -> CreditConfig:
    return CreditConfig(
        **{"kl_controller": "adaptive", "kl_coef": 0.2, "kl_target": 0.1, "kl_horizon": 1000, **fields}  # type: ignore[arg-type]
    )


def test_a_fixed_coefficient_stays() -> None:
    assert next_kl_coef(CreditConfig(kl_coef=0.05), kl=7.0, num_completions=256) == 0.05


@pytest.mark.parametrize(
    ("kl", "error"), [(0.1, 0.0), (0.11, 0.1), (0.09, -0.1), (5.0, 0.2), (0.0, -0.2), (-3.0, -0.2), (0.12, 0.2)]
)
def test_an_adaptive_one_follows_the_relative_error_within_bounds(kl: float, error: float) -> None:
    assert next_kl_coef(adaptive(), kl, num_completions=64) == pytest.approx(0.2 * (1 + error * 64 / 1000))


def test_it_is_a_value_in_and_a_value_out() -> None:
    coef = 0.2
    for _ in range(3):
        coef = next_kl_coef(adaptive(kl_coef=coef), kl=9.0, num_completions=100)

    assert coef == pytest.approx(0.2 * 1.02**3)


def test_a_horizon_of_one_step_is_refused() -> None:
    with pytest.raises(InvalidTrainingConfig, match=r"kl_ctrl\.horizon"):
        next_kl_coef(adaptive(kl_horizon=10), kl=0.0, num_completions=50)
