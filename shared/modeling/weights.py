"""A policy's weights as one safetensors blob with Hugging Face parameter names.

Tied parameters are stored once, so the blob is a valid `model.safetensors` beside a config.json.
"""

import torch
from safetensors.torch import save
from torch import Tensor
from transformers import PreTrainedModel

from shared.modeling.errors import WeightsMismatch
from shared.modeling.tensor_views import tensor_views
from shared.modeling.transfer import copy_all


def state_dict_to_blob(model: PreTrainedModel, dtype: torch.dtype | None = None) -> bytes:
    """The model's weights as safetensors bytes; equal weights give equal bytes.

    With `dtype`, floating-point tensors are published in it (a float32 learner feeding a bfloat16 rollout).
    """
    tensors = {name: _publish(tensor, dtype) for name, tensor in sorted(_stored_tensors(model).items())}
    return save(tensors, metadata={"format": "pt"})


@torch.no_grad()
def load_blob(model: PreTrainedModel, blob: bytes | memoryview, *, dtype: torch.dtype | None = None) -> None:
    """Copies a blob's tensors into the model's parameters, in place and in the model's own dtype.

    Tied names may be present or absent. Nothing else is copied of a writable view (`BlobStore.view`), on its way to a
    GPU neither. Raises WeightsMismatch, with the model untouched, when the blob is damaged, a name is missing or
    unexpected, a shape differs or, with `dtype`, floating-point tensors have another one: nobody could tell afterwards
    that they were rounded.
    """
    tensors = tensor_views(blob)
    targets = _stored_tensors(model)
    sources = {name: tensor for name, tensor in tensors.items() if name not in model.all_tied_weights_keys}
    _check_fit(sources, targets, dtype)
    copy_all((target, sources[name]) for name, target in targets.items())
    model.tie_weights()


def _stored_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """State by name without the names that are tied to another one."""
    return {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}


def _publish(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    # Rounded where it lies: half the bytes leave the GPU.
    tensor = tensor.detach()
    return (tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor).to("cpu").contiguous()


def _check_fit(sources: dict[str, Tensor], targets: dict[str, Tensor], dtype: torch.dtype | None) -> None:
    problems = [f"missing {name}" for name in sorted(targets.keys() - sources.keys())]
    problems += [f"unexpected {name}" for name in sorted(sources.keys() - targets.keys())]
    problems += [
        f"{name} has shape {tuple(sources[name].shape)} instead of {tuple(target.shape)}"
        for name, target in targets.items()
        if name in sources and sources[name].shape != target.shape
    ]
    problems += [
        f"{name} is {tensor.dtype} instead of {dtype}"
        for name, tensor in sources.items()
        if dtype is not None and tensor.is_floating_point() and tensor.dtype != dtype
    ]
    if problems:
        shown = "; ".join(problems[:5]) + (f" and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise WeightsMismatch(f"The weights blob does not fit this model: {shown}.")
