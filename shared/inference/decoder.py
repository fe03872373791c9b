"""Which forward pass a model gets."""

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from shared.inference.attention import Attention
from shared.inference.generic import TransformersDecoder
from shared.inference.llama import LlamaDecoder
from shared.inference.prefix_kv import KvLayout


class Decoder(Protocol):
    """A model's forward pass that leaves keys and values to an `Attention`."""

    layout: KvLayout
    num_heads: int
    """Of the queries."""
    dtype: torch.dtype
    device: torch.device

    def prefill(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> None:
        """Gives `attention` the keys and values of `token_ids` at `positions`, both `[N, P]`."""
        ...

    def decode(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits `[B, V]` of the token after each of `token_ids` `[B]` at `positions` `[B]`."""
        ...


def decoder_for(model: PreTrainedModel, *, has_weights: bool = True) -> Decoder:
    """The fastest forward pass that computes this model. Raises UnsupportedModel when there is none.

    Without weights, what the model has in their place need not survive: they are loaded into it afterwards.
    """
    if LlamaDecoder.supports(model):
        return LlamaDecoder(model, has_weights=has_weights)
    return TransformersDecoder(model)
