"""The estimators in a world of four tokens, where every expectation is a sum."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from functions.learner.kl.estimators import estimate_kl
from shared.contracts.learner import KlEstimator

ESTIMATORS: tuple[KlEstimator, ...] = ("kl", "mse", "low_var_kl")
LOGITS = torch.tensor([0.3, -1.2, 0.8, 0.1]).double()
REFERENCE = torch.tensor([-0.4, 0.5, 0.2, 1.1]).double().log_softmax(-1)


def gradient(objective: Callable[[Tensor], Tensor]) -> Tensor:
    """Of a function of the policy's logprobs over the four tokens, by its logits."""
    logits = LOGITS.clone().requires_grad_()
    objective(logits.log_softmax(-1)).backward()
    assert logits.grad is not None
    return logits.grad


def estimates(logprobs: Tensor, estimator: KlEstimator) -> Tensor:
    """Of each token, if it was the one that was sampled. [4]"""
    mask = torch.ones(1, 4, dtype=torch.bool)
    return estimate_kl(logprobs[None], REFERENCE[None], mask, estimator)[0]


def mean_of_gradients(estimator: KlEstimator) -> Tensor:
    """E_{y~π} of ∇ of the estimate at y: what a loss term has, whose samples are given."""
    return gradient(lambda logprobs: (logprobs.detach().exp() * estimates(logprobs, estimator)).sum())


def reverse_kl(logprobs: Tensor) -> Tensor:
    """KL(π‖ref)"""
    return (logprobs.exp() * (logprobs - REFERENCE)).sum()


def forward_kl(logprobs: Tensor) -> Tensor:
    """KL(ref‖π)"""
    return (REFERENCE.exp() * (REFERENCE - logprobs)).sum()


def test_k1_in_the_loss_does_nothing_in_the_mean() -> None:
    torch.testing.assert_close(mean_of_gradients("kl"), torch.zeros(4).double())


def test_k2_in_the_loss_is_the_reverse_kl() -> None:
    torch.testing.assert_close(mean_of_gradients("mse"), gradient(reverse_kl))


def test_k3_in_the_loss_is_the_forward_kl() -> None:
    torch.testing.assert_close(mean_of_gradients("low_var_kl"), gradient(forward_kl))


def test_k1_in_the_reward_is_the_reverse_kl() -> None:
    """Policy gradient of the penalty, E[kl(y) · ∇log π(y)]: the number is given, the logprob is what moves."""

    def surrogate(logprobs: Tensor) -> Tensor:
        return (logprobs.detach().exp() * estimates(logprobs.detach(), "kl") * logprobs).sum()

    torch.testing.assert_close(gradient(surrogate), gradient(reverse_kl))


@pytest.mark.parametrize("estimator", ["kl", "low_var_kl"])
def test_k1_and_k3_have_the_kl_as_their_mean(estimator: KlEstimator) -> None:
    logprobs = LOGITS.log_softmax(-1)

    assert (logprobs.exp() * estimates(logprobs, estimator)).sum().item() == pytest.approx(reverse_kl(logprobs).item())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_at_the_reference_all_are_zero_and_without_a_gradient_in_the_mean(estimator: KlEstimator) -> None:
    logprobs = REFERENCE.clone().requires_grad_()
    values = estimates(logprobs, estimator)

    assert values.tolist() == [0.0] * 4


@given(st.floats(-30, 30))
def test_k2_and_k3_are_never_negative(log_ratio: float) -> None:
    for estimator in ("mse", "low_var_kl"):
        estimate = estimate_kl(
            torch.tensor([[log_ratio]]).double(), torch.zeros(1, 1).double(), torch.tensor([[True]]), estimator
        )
        assert estimate.item() >= 0.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("garbage", [1e6, float("inf"), float("nan")])
def test_masked_positions_are_zero_and_get_no_gradient(estimator: KlEstimator, garbage: float) -> None:
    logprobs = torch.tensor([[-1.0, garbage, -2.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True]])

    values = estimate_kl(logprobs, torch.tensor([[-2.0, garbage, -2.5]]), mask, estimator)
    values.sum().backward()

    assert values[0, 1].item() == 0.0
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[0, 1].item() == 0.0
    assert logprobs.grad[0, 0].item() != 0.0


def test_no_input_is_changed() -> None:
    logprobs, reference = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -1.0]])
    for estimator in ESTIMATORS:
        estimate_kl(logprobs, reference, torch.tensor([[True, False]]), estimator)

    assert (logprobs.tolist(), reference.tolist()) == ([[-1.0, -2.0]], [[-2.0, -1.0]])
