"""AdamW, and its state as one blob that a learner on any machine can go on from.

The blob holds `exp_avg.<parameter>` and `exp_avg_sq.<parameter>` by Hugging Face parameter name (tied weights
once) and the number of updates. Hyperparameters are no state: every call's config carries them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from shared.training.errors import DamagedState
from shared.training.optimizer_config import OptimizerConfig
from shared.training.state_blob import decode_state, encode_state

KIND = "optimizer state"
MOMENTS = ("exp_avg", "exp_avg_sq")


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


def optimizer_state_to_blob(optimizer: AdamW, model: nn.Module) -> bytes:
    """The state as bytes; equal states give equal bytes. A fresh optimizer has no tensors and 0 updates."""
    states = {name: optimizer.state.get(parameter) for name, parameter in trainable_parameters(model).items()}
    kept = {name: state for name, state in states.items() if state}
    tensors = {f"{moment}.{name}": state[moment] for name, state in kept.items() for moment in MOMENTS}
    return encode_state(KIND, tensors, {"num_updates": max((int(state["step"]) for state in kept.values()), default=0)})


def load_optimizer_state(optimizer: AdamW, model: nn.Module, blob: bytes) -> None:
    """Replaces the state by a blob's. On CPU the next update is bit-equal to one without the round trip.

    Raises DamagedState, with the optimizer untouched, when the blob cannot be read or does not hold exactly the
    model's trainable parameters.
    """
    tensors, facts = decode_state(KIND, blob)
    num_updates = facts.get("num_updates")
    if not isinstance(num_updates, int) or num_updates < 0:
        raise DamagedState(f"the optimizer state counts {num_updates!r} updates")
    if num_updates == 0 and not tensors:
        optimizer.state.clear()
        return
    parameters = trainable_parameters(model)
    _check_fit(tensors, parameters)
    for name, parameter in parameters.items():
        optimizer.state[parameter] = {
            # A tensor, as the fused kernel wants it.
            "step": torch.tensor(float(num_updates), dtype=torch.float32, device=parameter.device),
            **{moment: tensors[f"{moment}.{name}"].to(parameter.device, copy=True) for moment in MOMENTS},
        }


def _check_fit(tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> None:
    wanted = {f"{moment}.{name}": parameter for name, parameter in parameters.items() for moment in MOMENTS}
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
