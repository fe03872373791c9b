import pytest
import torch

from functions.learner.credit_config import CreditConfig
from functions.learner.kl.reward_penalty import kl_penalty

NAN = float("nan")
SAMPLED = torch.tensor([[True, False, True, True], [True, False, False, False], [False] * 4])
OLD = torch.tensor([[-1.0, NAN, -2.0, -1.0], [-1.0, 1e6, NAN, NAN], [NAN] * 4])
REFERENCE = torch.tensor([[-1.5, NAN, -1.0, -1.0], [-3.0, NAN, NAN, 1e6], [NAN] * 4])


def test_each_token_pays_its_own_distance() -> None:
    penalty = kl_penalty(OLD, REFERENCE, SAMPLED, CreditConfig(kl_penalty="kl", kl_coef=0.1))

    assert penalty.token_penalties.tolist() == [
        pytest.approx([0.05, 0.0, -0.1, 0.0]),
        pytest.approx([0.2, 0.0, 0.0, 0.0]),
        [0.0] * 4,
    ]
    assert penalty.token_penalties.dtype == torch.float64


def test_the_kl_is_the_mean_over_completions_of_their_tokens_mean() -> None:
    penalty = kl_penalty(OLD, REFERENCE, SAMPLED, CreditConfig(kl_penalty="kl", kl_coef=0.1))

    assert penalty.kl == pytest.approx((-0.5 / 3 + 2.0) / 2)
    assert penalty.next_coef == 0.1


def test_the_controller_counts_completions() -> None:
    config = CreditConfig(kl_penalty="mse", kl_coef=0.1, kl_controller="adaptive", kl_horizon=30, kl_target=0.1)

    assert kl_penalty(OLD, REFERENCE, SAMPLED, config).next_coef == pytest.approx(0.1 * (1 + 0.2 * 3 / 30))


def test_a_batch_without_sampled_tokens_has_no_kl() -> None:
    penalty = kl_penalty(OLD, REFERENCE, torch.zeros_like(SAMPLED), CreditConfig(kl_penalty="kl"))

    assert penalty.kl == 0.0
    assert not penalty.token_penalties.any()
