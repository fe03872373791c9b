import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.critic.value_loss import clipped_value_loss

number = st.floats(-3, 3, width=32)


def naive(value: float, old: float, ret: float, cliprange: float | None) -> float:
    if cliprange is None:
        return 0.5 * (value - ret) ** 2
    clipped = min(max(value, old - cliprange), old + cliprange)
    return 0.5 * max((value - ret) ** 2, (clipped - ret) ** 2)


@given(value=number, old=number, ret=number, cliprange=st.one_of(st.none(), st.floats(0.05, 2)))
def test_each_token_is_the_formula(value: float, old: float, ret: float, cliprange: float | None) -> None:
    one = [torch.tensor([[each]], dtype=torch.float64) for each in (value, old, ret)]
    loss = clipped_value_loss(*one, torch.ones(1, 1, dtype=torch.bool), cliprange)
    assert loss.token_loss.item() == pytest.approx(naive(value, old, ret, cliprange), abs=1e-12)


def test_a_value_that_has_moved_too_far_gets_no_gradient() -> None:
    values = torch.tensor([[0.9, 0.3, -0.9]], requires_grad=True)
    old, returns = torch.zeros(1, 3), torch.full((1, 3), 2.0)
    loss = clipped_value_loss(values, old, returns, torch.ones(1, 3, dtype=torch.bool), 0.5)
    loss.token_loss.sum().backward()
    # The first has moved towards its return beyond the clip; the last moved away from it and is drawn back.
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0, pytest.approx(-1.7), pytest.approx(-2.9)]]
    assert loss.is_clipped.tolist() == [[True, False, False]]


@pytest.mark.parametrize("garbage", [1e6, math.nan, math.inf])
def test_masked_positions_reach_neither_loss_nor_gradient(garbage: float) -> None:
    values = torch.tensor([[0.3, garbage]], requires_grad=True)
    other = torch.tensor([[0.1, garbage]])
    mask = torch.tensor([[True, False]])
    loss = clipped_value_loss(values, other, other, mask, 0.2)
    torch.where(mask, loss.token_loss, 0.0).sum().backward()
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()
    assert values.grad[0, 1] == 0
