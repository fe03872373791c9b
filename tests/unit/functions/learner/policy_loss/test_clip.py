import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.loss_config import LossConfig
from functions.learner.policy_loss.clip import clipped_policy_loss
from functions.learner.policy_loss.inputs import PolicyLoss, PolicyLossInputs

Clip = tuple[float, float, float | None]
"""(low, high, dual)"""

SEEDS = st.integers(0, 2**32 - 1)
GARBAGE = np.array([1e6, np.inf, -np.inf, np.nan])
CLIPS: list[Clip] = [(0.2, 0.2, None), (0.2, 0.28, None), (0.1, 0.5, 3.0), (0.0, 0.0, 1.5)]
INPUTS = ("learner_logprobs", "old_logprobs", "advantages")


def loss_of(inputs: dict[str, torch.Tensor], clip: Clip) -> PolicyLoss:
    low, high, dual = clip
    config = LossConfig(clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=dual)
    return clipped_policy_loss(PolicyLossInputs(**inputs), config)


def naive(learner: float, old: float, advantage: float, clip: Clip) -> tuple[float, bool, bool]:
    """Loss of one token, whether it was clipped, and whether by the dual clip: the papers' formulas, case by case."""
    low, high, dual = clip
    ratio = math.exp(learner - old)
    unclipped = -advantage * ratio
    clipped = -advantage * min(max(ratio, 1 - low), 1 + high)
    loss = max(unclipped, clipped)
    is_lower = dual is not None and advantage < 0 and loss > -advantage * dual
    return (-advantage * dual if is_lower else loss), clipped > unclipped, is_lower


def random_inputs(seed: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Inputs of a ragged shape [B, T] in float64, and the same with garbage at masked positions."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 6)))
    mask = torch.from_numpy(rng.random(shape) < 0.7)
    low_high = {
        "learner_logprobs": (-3, 0),
        "old_logprobs": (-3, 0),
        "advantages": (-3, 3),
    }
    clean = {name: torch.from_numpy(rng.uniform(*limits, shape)) for name, limits in low_high.items()}
    dirty = {
        name: torch.where(mask, values, torch.from_numpy(rng.choice(GARBAGE, shape))) for name, values in clean.items()
    }
    return clean | {"loss_mask": mask}, dirty | {"loss_mask": mask}


@pytest.mark.parametrize("clip", CLIPS)
@given(seed=SEEDS)
def test_agrees_with_loops_over_tokens_whatever_stands_at_masked_positions(clip: Clip, seed: int) -> None:
    clean, dirty = random_inputs(seed)

    result = loss_of(dirty, clip)

    sums = dict.fromkeys(result.token_sums, 0.0)
    for at in product(*map(range, clean["loss_mask"].shape)):
        loss = 0.0
        if clean["loss_mask"][at]:
            learner, old, advantage = (clean[name][at].item() for name in INPUTS)
            loss, is_clipped, is_lower = naive(learner, old, advantage, clip)
            sums["actor/ppo_kl"] += old - learner
            sums["actor/pg_clipfrac"] += is_clipped
            sums["actor/pg_clipfrac_lower"] += is_lower
        assert result.token_loss[at].item() == pytest.approx(loss, rel=1e-12)
    assert {name: value.item() for name, value in result.token_sums.items()} == pytest.approx(sums)


@pytest.mark.parametrize("clip", CLIPS)
@given(seed=SEEDS)
def test_garbage_gets_no_gradient_and_spoils_none(clip: Clip, seed: int) -> None:
    gradients = []
    for tensors in random_inputs(seed):
        leaf = tensors["learner_logprobs"].clone().requires_grad_()
        loss_of({**tensors, "learner_logprobs": leaf}, clip).token_loss.sum().backward()
        gradients.append(leaf.grad)
        assert not leaf.grad[~tensors["loss_mask"]].any()

    assert torch.equal(gradients[0], gradients[1])


def single(ratio: float, advantage: float, **clip: float | None) -> tuple[float, float, dict[str, float]]:
    """Loss, gradient by the logprob and metric sums of one token."""
    learner = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    inputs = PolicyLossInputs(
        learner_logprobs=learner,
        old_logprobs=torch.zeros(1, 1, dtype=torch.float64),
        advantages=torch.tensor([[advantage]], dtype=torch.float64),
        loss_mask=torch.ones(1, 1, dtype=torch.bool),
    )
    result = clipped_policy_loss(inputs, LossConfig(**{"clip_ratio_low": 0.2, "clip_ratio_high": 0.3, **clip}))
    result.token_loss.sum().backward()
    return result.token_loss.item(), learner.grad.item(), {name: s.item() for name, s in result.token_sums.items()}


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipfrac"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),
        (1.29, 1.0, -1.29, -1.29, 0),
        (1.31, 1.0, -1.3, 0.0, 1),
        (0.5, 1.0, -0.5, -0.5, 0),
        (0.81, -1.0, 0.81, 0.81, 0),
        (0.79, -1.0, 0.8, 0.0, 1),
        (5.0, -1.0, 5.0, 5.0, 0),
    ],
)
def test_clips_only_on_the_side_where_the_step_would_go_too_far(
    ratio: float, advantage: float, loss: float, gradient: float, clipfrac: int
) -> None:
    got_loss, got_gradient, sums = single(ratio, advantage)

    assert got_loss == pytest.approx(loss)
    assert got_gradient == pytest.approx(gradient)
    assert (sums["actor/pg_clipfrac"], sums["actor/pg_clipfrac_lower"]) == (clipfrac, 0)
    assert sums["actor/ppo_kl"] == pytest.approx(-math.log(ratio))


def test_dual_clip_bounds_a_bad_token_that_became_likely() -> None:
    assert single(5.0, -2.0, clip_ratio_c=3.0)[:2] == pytest.approx((6.0, 0.0))
    assert single(5.0, -2.0, clip_ratio_c=3.0)[2]["actor/pg_clipfrac_lower"] == 1
    assert single(2.5, -2.0, clip_ratio_c=3.0)[:2] == pytest.approx((5.0, 5.0))
    assert single(5.0, 2.0, clip_ratio_c=3.0)[0] == pytest.approx(-2.6)


def test_on_fresh_rollouts_the_gradient_is_that_of_the_logprob() -> None:
    learner = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages = torch.tensor([[0.5, -3.0]])

    result = loss_of(
        {
            "learner_logprobs": learner,
            "old_logprobs": learner.detach(),
            "advantages": advantages,
            "loss_mask": torch.ones(1, 2, dtype=torch.bool),
        },
        (0.2, 0.2, 3.0),
    )
    result.token_loss.sum().backward()

    assert torch.equal(result.token_loss, -advantages)
    assert torch.equal(learner.grad, -advantages)


def test_a_runaway_token_gives_a_finite_loss() -> None:
    loss, gradient, _ = single(math.exp(500.0), -1.0)

    assert math.isfinite(loss)
    assert gradient == 0.0


def test_no_input_is_changed() -> None:
    for tensors in random_inputs(seed=0):
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        loss_of(tensors, (0.2, 0.2, 3.0))
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, before[name], rtol=0, atol=0, equal_nan=True)
