"""A model's gradient by parameter name, whole, whether the model lies in one piece or in parts on several ranks."""

from collections.abc import Mapping

from torch import Tensor, nn

from functions.learner.ranks.parts import part_like, whole
from shared.training.errors import DamagedState
from shared.training.optimizer import trainable_parameters


def full_gradient(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients there are, on the CPU. All ranks call it together."""
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
