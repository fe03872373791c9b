"""The gradient between backward and the optimizer."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from shared.training.errors import DamagedState, NonFiniteGradient
from shared.training.optimizer import trainable_parameters
from shared.training.parts import part_like, whole


def complete_gradient(parameters: Iterable[nn.Parameter]) -> None:
    """Gives every parameter that the loss did not reach a gradient of 0.

    AdamW skips parameters without one. Which those are would depend on the rows; so each update is one for all.
    """
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def clip_gradient(parameters: Iterable[nn.Parameter], max_norm: float | None) -> float:
    """Scales the whole gradient to at most `max_norm` (2-norm; None leaves it) and returns the norm it had.

    Raises NonFiniteGradient when the norm is not finite: scaled or not, such a gradient destroys the model.
    """
    parameters = list(parameters)
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    value = norm.item()
    if not math.isfinite(value):
        raise NonFiniteGradient(
            f"the gradient's norm is {value}, the update was not applied: look for a training/rollout_probs_diff "
            "that grew before, lower lr, or resume from an earlier checkpoint"
        )
    if max_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return value


def full_gradient(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients there are, by parameter name, on the CPU, whole also where the model lies in parts.

    All ranks call it together.
    """
    gradients = {name: parameter.grad for name, parameter in trainable_parameters(model).items()}
    return {name: whole(gradient).cpu().clone() for name, gradient in gradients.items() if gradient is not None}


def set_gradient(model: nn.Module, gradient: Mapping[str, Tensor]) -> None:
    """Give each parameter its gradient, or none. Raises DamagedState where one does not fit."""
    parameters = trainable_parameters(model)
    unknown = sorted(gradient.keys() - parameters.keys())
    if unknown or any(parameters[name].shape != tensor.shape for name, tensor in gradient.items()):
        raise DamagedState(f"the stored gradient does not fit this model: look at {(unknown or ['its shapes'])[0]}")
    for name, parameter in parameters.items():
        parameter.grad = part_like(gradient[name], parameter) if name in gradient else None
