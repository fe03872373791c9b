"""A causal language model's body with a head that says one number per token: V of the state before a token.

The head takes the place of the output embeddings, so every forward pass that gives logits gives values: `[..., 1]`
instead of `[..., V]`. The value of the state before token t is read where token t would be predicted.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from shared.modeling.device import compute_device
from shared.modeling.errors import UnsupportedModel
from shared.modeling.loading import load_model, new_model


def initial_value_model(path: str) -> PreTrainedModel:
    """The model's weights with a fresh head. Raises the model's own errors."""
    return _with_value_head(load_model(path))


def new_value_model(path: str) -> PreTrainedModel:
    """The architecture alone, where the replica computes; load a blob first. Raises the model's own errors."""
    return _with_value_head(new_model(path, device=compute_device()))


def _with_value_head(model: PreTrainedModel) -> PreTrainedModel:
    """Zeros, so that training starts from the value 0 everywhere and not from noise."""
    output = model.get_output_embeddings()
    if not isinstance(output, nn.Linear):
        raise UnsupportedModel(f"{model.config.model_type} has no linear output layer that a value head could replace")
    head = nn.Linear(output.in_features, 1, bias=True, device=output.weight.device, dtype=output.weight.dtype)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
    model.set_output_embeddings(head)
    # Whatever the language model's own head was, this one is not tied to the input embeddings.
    model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False
    model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=False)
    return model.eval()
