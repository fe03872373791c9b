"""Gradient checkpointing: a layer's activations are computed again for the backward pass instead of being kept.

The models' own checkpointing works in training mode only, where dropout is on, and it drops the key/value cache that a
pass may rely on. This one wraps the layers' forward: in eval mode too, for any arguments, without touching a cache.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from shared.training.errors import InvalidTrainingConfig


@contextmanager
def checkpointed_layers(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model's layers keep their inputs only; backward belongs within too.

    Raises InvalidTrainingConfig for an architecture whose layers are not marked as such.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise InvalidTrainingConfig(
            f"enable_gradient_checkpointing: {model.config.model_type} has no layers that can be computed again; "
            "turn it off"
        )
    for layer in layers:
        layer.forward = _checkpointed(layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def recomputing(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        # Nothing in a layer is random: dropout is off.
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return recomputing
