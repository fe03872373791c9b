"""LoRA by peft: an adapter's matrices inside a model's linear layers, the only parameters that are trained.

The model keeps its class, so every forward pass here works on it as before; without dropout, so that a pass is the same
function of the weights whether it trains or not.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from shared.codec.lora_adapter import DamagedAdapter, LoraAdapter, decode_adapter
from shared.contracts.errors import InvalidInput
from shared.contracts.lora import LoraConfig
from shared.training.errors import DamagedState, InvalidTrainingConfig

ADAPTER = "default"


def initial_adapter(model: PreTrainedModel, config: LoraConfig) -> LoraAdapter:
    """Version 0 of an adapter for the model, which it leaves adapted: A at random, B zero.

    The same config gives the same adapter. Raises InvalidTrainingConfig where no layer has the asked names.
    """
    targets = _target_layers(model, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        _inject(model, rank=config.rank, alpha=config.alpha, targets=targets)
    return adapter_of(model)


@torch.no_grad()
def attach_adapter(model: PreTrainedModel, blob: bytes) -> None:
    """Put a stored adapter into a model without one; from now on only it is trained.

    Raises DamagedState when it cannot be read or is of another model.
    """
    try:
        adapter = decode_adapter(blob)
    except DamagedAdapter as error:
        raise DamagedState(str(error)) from error
    modules = dict(model.named_modules())
    for name, (a, b) in adapter.matrices.items():
        layer = modules.get(name)
        if not isinstance(layer, nn.Linear) or layer.weight.shape != (b.shape[0], a.shape[1]):
            raise DamagedState(f"the adapter is of another model: there is no {name} of shape {b.shape[0], a.shape[1]}")
    _inject(model, rank=adapter.rank, alpha=adapter.alpha, targets=sorted(adapter.matrices))
    for name, layer in _adapted_layers(model).items():
        a, b = adapter.matrices[name]
        layer.lora_A[ADAPTER].weight.copy_(torch.from_numpy(a))
        layer.lora_B[ADAPTER].weight.copy_(torch.from_numpy(b))


def adapter_of(model: PreTrainedModel) -> LoraAdapter:
    """The adapter as it now stands in the model, which must have one."""
    layers = _adapted_layers(model)
    first = next(iter(layers.values()))
    return LoraAdapter(
        rank=first.r[ADAPTER],
        alpha=first.lora_alpha[ADAPTER],
        matrices={
            name: (_numpy(layer.lora_A[ADAPTER].weight), _numpy(layer.lora_B[ADAPTER].weight))
            for name, layer in layers.items()
        },
    )


def _target_layers(model: PreTrainedModel, config: LoraConfig) -> list[str]:
    """Full names of the layers to adapt."""
    modules = dict(model.named_modules())
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
    if config.target_modules == "all-linear":
        return [name for name in linear if modules[name] is not model.get_output_embeddings()]
    found: list[str] = []
    for target in config.target_modules:
        names = [name for name in modules if f".{name}".endswith(f".{target}")]
        tied = [name for name in names if f"{name}.weight" in model.all_tied_weights_keys]
        if not names or tied or not set(names) <= set(linear):
            endings = sorted({name.rpartition(".")[2] for name in linear})
            raise InvalidTrainingConfig(
                f"model.target_modules: {target!r} is no linear layer with weights of its own; there are {endings}"
            )
        found += names
    return sorted(set(found))


def _inject(model: PreTrainedModel, *, rank: int, alpha: float, targets: list[str]) -> None:
    """Freeze the model and put fresh matrices into the target layers."""
    try:
        # Only runs with LoRA have it, and importing it takes seconds.
        from peft import LoraConfig as PeftConfig
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise InvalidInput(
            "model.lora_rank: this function's image lacks the package peft; install it, or set lora_rank to 0"
        ) from error
    # peft says that alpha is an integer, and only divides it.
    settings: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "target_modules": targets}
    config = PeftConfig(**settings, lora_dropout=0.0, bias="none")
    inject_adapter_in_model(config, model, ADAPTER)
    model.to(model.device).eval()


def _adapted_layers(model: PreTrainedModel) -> dict[str, Any]:
    """The layers with an adapter, by the name that they have without one."""
    return {name: module for name, module in model.named_modules() if ADAPTER in getattr(module, "lora_A", {})}


def _numpy(parameter: torch.Tensor) -> Any:
    return parameter.detach().to("cpu", torch.float32, copy=True).numpy()
