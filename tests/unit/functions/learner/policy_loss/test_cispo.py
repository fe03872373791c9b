import math

import pytest
import torch

from functions.learner.loss_config import LossConfig
from functions.learner.policy_loss.cispo import clipped_weight_policy_loss
from functions.learner.policy_loss.inputs import PolicyLoss, PolicyLossInputs


def loss_of(learner: torch.Tensor, ratios: list[float], advantages: list[float], **config: float) -> PolicyLoss:
    mask = torch.tensor([[True] * len(ratios) + [False]])
    old = learner.detach()[:, :-1] - torch.tensor([ratios]).double().log()
    inputs = PolicyLossInputs(
        learner_logprobs=learner,
        old_logprobs=torch.cat([old, torch.tensor([[torch.nan]]).double()], -1),
        advantages=torch.tensor([[*advantages, torch.inf]]).double(),
        loss_mask=mask,
    )
    limits = {"clip_ratio_low": 1.0, "clip_ratio_high": 4.0, **config}
    return clipped_weight_policy_loss(inputs, LossConfig(loss_mode="cispo", **limits))


@pytest.mark.parametrize(
    ("limits", "weights", "num_clipped", "num_lower"),
    [({}, [0.1, 1.0, 3.0, 5.0], 1, 0), ({"clip_ratio_low": 0.2, "clip_ratio_high": 0.5}, [0.8, 1.0, 1.5, 1.5], 3, 1)],
)
def test_every_token_learns_with_a_bounded_weight(
    limits: dict[str, float], weights: list[float], num_clipped: int, num_lower: int
) -> None:
    learner = torch.tensor([[-1.0, -2.0, -0.5, -3.0, torch.nan]]).double().requires_grad_()
    advantages = [1.0, -1.0, 2.0, -0.5]

    loss = loss_of(learner, [0.1, 1.0, 3.0, 50.0], advantages, **limits)
    loss.token_loss.sum().backward()

    assert learner.grad is not None
    expected = [-weight * advantage for weight, advantage in zip(weights, advantages, strict=True)]
    assert learner.grad[0].tolist() == pytest.approx([*expected, 0.0])
    logprobs = learner.detach()[0, :4].tolist()
    assert loss.token_loss[0].tolist() == pytest.approx(
        [*(slope * logprob for slope, logprob in zip(expected, logprobs, strict=True)), 0.0]
    )
    assert loss.token_sums["actor/pg_clipfrac"].item() == num_clipped
    assert loss.token_sums["actor/pg_clipfrac_lower"].item() == num_lower


def test_a_runaway_token_has_a_finite_loss() -> None:
    learner = torch.tensor([[-1.0, torch.nan]]).double().requires_grad_()

    assert math.isfinite(loss_of(learner, [1e300], [-1.0]).token_loss.sum().item())
