"""AdamW, and its state as one blob that a learner on any machine can go on from.

The blob holds `exp_avg.<parameter>` and `exp_avg_sq.<parameter>` by Hugging Face parameter name (tied weights
once) and the number of updates; where weights are published in less than float32, also `weight.<parameter>`, the
float32 ones that training goes on from: updates smaller than the rounding would be lost in the published ones.
Hyperparameters are no state: every call's config carries them.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from shared.modeling.transfer import copy_all
from shared.training.errors import DamagedState
from shared.training.optimizer_config import OptimizerConfig
from shared.training.state_blob import decode_state, encode_state

KIND = "optimizer state"
MOMENTS = ("exp_avg", "exp_avg_sq")
WEIGHT = "weight"


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that an update changes, by name; tied weights once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> AdamW:
    """A fresh AdamW (decoupled decay, arXiv 1711.05101) over all trainable parameters, with decay on every one."""
    optimizer = AdamW(list(trainable_parameters(model).values()), fused=True)
    configure(optimizer, config, config.lr)
    return optimizer


def configure(optimizer: AdamW, config: OptimizerConfig, lr: float) -> None:
    """Hyperparameters of the updates to come. An optimizer that was kept from an earlier call has that one's."""
    for group in optimizer.param_groups:
        group.update(lr=lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)


def optimizer_state_to_blob(optimizer: AdamW, model: nn.Module, *, with_weights: bool = False) -> bytes:
    """The state as bytes; equal states give equal bytes. A fresh optimizer has no moments and 0 updates."""
    states = {name: optimizer.state.get(parameter) for name, parameter in trainable_parameters(model).items()}
    kept = {name: state for name, state in states.items() if state}
    tensors = {f"{moment}.{name}": state[moment] for name, state in kept.items() for moment in MOMENTS}
    if with_weights:
        tensors |= {f"{WEIGHT}.{name}": parameter for name, parameter in trainable_parameters(model).items()}
    return encode_state(KIND, tensors, {"num_updates": max((int(state["step"]) for state in kept.values()), default=0)})


def load_optimizer_state(
    optimizer: AdamW, model: nn.Module, blob: bytes | memoryview, *, with_weights: bool = False
) -> None:
    """Replaces the state by a blob's. On CPU the next update is bit-equal to one without the round trip.

    `with_weights` says whether the blob must, or must not, hold weights; they are left for `load_weights`. Raises
    DamagedState, with the optimizer untouched, when the blob cannot be read or does not hold exactly the model's
    trainable parameters.
    """
    tensors, facts = decode_state(KIND, blob)
    parameters = trainable_parameters(model)
    weights = {name: tensors.pop(name) for name in list(tensors) if name.startswith(f"{WEIGHT}.")}
    _check_fit(weights, _prefixed(parameters, (WEIGHT,)) if with_weights else {})
    num_updates = facts.get("num_updates")
    if not isinstance(num_updates, int) or num_updates < 0:
        raise DamagedState(f"the optimizer state counts {num_updates!r} updates")
    if num_updates == 0 and not tensors:
        optimizer.state.clear()
        return
    _check_fit(tensors, _prefixed(parameters, MOMENTS))
    for parameter in parameters.values():
        optimizer.state[parameter] = {
            # A tensor, as the fused kernel wants it.
            "step": torch.tensor(float(num_updates), dtype=torch.float32, device=parameter.device),
            **{moment: torch.empty_like(parameter, requires_grad=False) for moment in MOMENTS},
        }
    copy_all(
        (optimizer.state[parameter][moment], tensors[f"{moment}.{name}"])
        for name, parameter in parameters.items()
        for moment in MOMENTS
    )


def load_weights(model: nn.Module, blob: bytes | memoryview) -> None:
    """Takes the float32 weights out of a state blob into the model. Raises DamagedState, with the model untouched."""
    tensors, _ = decode_state(KIND, blob)
    wanted = _prefixed(trainable_parameters(model), (WEIGHT,))
    weights = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{WEIGHT}.")}
    _check_fit(weights, wanted)
    copy_all((parameter, weights[name]) for name, parameter in wanted.items())


def _prefixed(parameters: Mapping[str, nn.Parameter], prefixes: Sequence[str]) -> dict[str, nn.Parameter]:
    return {f"{prefix}.{name}": parameter for name, parameter in parameters.items() for prefix in prefixes}


def _check_fit(tensors: Mapping[str, Tensor], wanted: Mapping[str, nn.Parameter]) -> None:
    problems = [f"missing {name}" for name in sorted(wanted.keys() - tensors.keys())]
    problems += [f"unexpected {name}" for name in sorted(tensors.keys() - wanted.keys())]
    problems += [
        f"{name} is {tensor.dtype} {tuple(tensor.shape)} instead of {wanted[name].dtype} {tuple(wanted[name].shape)}"
        for name, tensor in sorted(tensors.items())
        if name in wanted and (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype)
    ]
    if problems:
        shown = "; ".join(problems[:5]) + (f" and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise DamagedState(f"the optimizer state does not fit this model: {shown}")
