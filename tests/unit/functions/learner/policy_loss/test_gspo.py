import math

import pytest
import torch

from functions.learner.loss_config import LossConfig
from functions.learner.policy_loss.gspo import sequence_policy_loss
from functions.learner.policy_loss.inputs import PolicyLoss, PolicyLossInputs

MASK = torch.tensor([[True, True, False, True], [True, False, False, False], [False] * 4])
OLD = torch.tensor([[-1.0, -2.0, -9.0, -0.5], [-1.0, 0.0, 0.0, 0.0], [0.0] * 4]).double()
LEARNER = torch.tensor([[-1.1, -1.5, -3.0, -0.6], [-1.6, 0.0, 0.0, 0.0], [0.0] * 4]).double()
MEAN_LOG_RATIO = (-0.1 + 0.5 - 0.1) / 3
RATIOS = [math.exp(MEAN_LOG_RATIO), math.exp(-0.6)]
GARBAGE = torch.tensor([[0.0, 0.0, torch.nan, 0.0], [0.0, torch.inf, -torch.inf, 1e6], [torch.nan] * 4]).double()


def loss_of(learner: torch.Tensor, advantages: list[float], **config: float | None) -> PolicyLoss:
    inputs = PolicyLossInputs(
        learner_logprobs=torch.where(MASK, learner, GARBAGE),
        old_logprobs=torch.where(MASK, OLD, GARBAGE),
        advantages=torch.where(MASK, torch.tensor(advantages).double()[:, None], GARBAGE),
        loss_mask=MASK,
    )
    return sequence_policy_loss(inputs, LossConfig(loss_mode="gspo", **{"clip_ratio_high": 0.3, **config}))


def test_every_token_has_the_geometric_mean_of_its_completions_ratios() -> None:
    loss = loss_of(LEARNER, [1.0, 2.0, 1.0])

    assert loss.token_loss.tolist() == [
        pytest.approx([-RATIOS[0], -RATIOS[0], 0.0, -RATIOS[0]]),
        pytest.approx([-2.0 * RATIOS[1], 0.0, 0.0, 0.0]),
        [0.0] * 4,
    ]
    assert loss.token_sums["actor/ppo_kl"].item() == pytest.approx(-0.3 + 0.6)
    assert loss.token_sums["actor/pg_clipfrac"].item() == 0


def test_a_completion_is_clipped_as_a_whole() -> None:
    loss = loss_of(LEARNER, [1.0, -1.0, 1.0], clip_ratio_high=0.1)

    assert loss.token_loss.tolist() == [
        pytest.approx([-1.1, -1.1, 0.0, -1.1]),
        pytest.approx([0.8, 0.0, 0.0, 0.0]),
        [0.0] * 4,
    ]
    assert loss.token_sums["actor/pg_clipfrac"].item() == 4
    assert loss.token_sums["actor/pg_clipfrac_lower"].item() == 0


def test_dual_clip_bounds_the_completions_ratio() -> None:
    loss = loss_of(LEARNER, [-1.0, 1.0, 1.0], clip_ratio_c=1.05)

    assert loss.token_loss[0].tolist() == pytest.approx([1.05, 1.05, 0.0, 1.05])
    assert loss.token_sums["actor/pg_clipfrac_lower"].item() == 3


def test_the_gradient_is_that_of_the_sequence_form() -> None:
    """With one advantage per completion the mean over its tokens is GSPO's objective itself."""
    token_form, sequence_form = LEARNER.clone().requires_grad_(), LEARNER.clone().requires_grad_()
    loss_of(token_form, [1.0, -2.0, 1.0]).token_loss[0].sum().div(3).backward()
    log_ratio = torch.where(MASK, sequence_form - OLD, 0.0)[0].sum() / 3
    (-log_ratio.exp()).backward()

    assert token_form.grad is not None
    assert sequence_form.grad is not None
    torch.testing.assert_close(token_form.grad, sequence_form.grad)
    assert not token_form.grad[~MASK].any()


def test_a_runaway_completion_gives_a_finite_loss() -> None:
    learner = LEARNER.clone()
    learner[0, :] = 1e5

    loss = loss_of(learner.requires_grad_(), [-1.0, 1.0, 1.0])

    assert math.isfinite(loss.token_loss.sum().item())
