import pytest
import torch
from torch import nn

from shared.training.errors import NonFiniteGradient
from shared.training.gradient import clip_gradient, complete_gradient


def parameters_with(*gradients: list[float] | None) -> list[nn.Parameter]:
    parameters = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(2))
        parameter.grad = None if gradient is None else torch.tensor(gradient)
        parameters.append(parameter)
    return parameters


def test_a_large_gradient_is_scaled_as_a_whole() -> None:
    parameters = parameters_with([3.0, 0.0], [0.0, 4.0])

    norm = clip_gradient(parameters, 1.0)

    assert norm == 5.0
    assert parameters[0].grad.tolist() == pytest.approx([0.6, 0.0], rel=1e-5)
    assert parameters[1].grad.tolist() == pytest.approx([0.0, 0.8], rel=1e-5)


@pytest.mark.parametrize("max_norm", [6.0, None])
def test_a_small_gradient_or_no_bound_leaves_it(max_norm: float | None) -> None:
    parameters = parameters_with([3.0, 4.0])

    assert clip_gradient(parameters, max_norm) == 5.0
    assert parameters[0].grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("max_norm", [1.0, None])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused(value: float, max_norm: float | None) -> None:
    with pytest.raises(NonFiniteGradient, match="was not applied"):
        clip_gradient(parameters_with([1.0, value], [1.0, 1.0]), max_norm)


def test_parameters_that_the_loss_did_not_reach_get_zeros() -> None:
    parameters = parameters_with([1.0, 2.0], None)

    complete_gradient(parameters)

    assert [parameter.grad.tolist() for parameter in parameters] == [[1.0, 2.0], [0.0, 0.0]]
