"""Which forward pass a model gets."""

from typing import Protocol

from torch import Tensor
from transformers import PreTrainedModel

from functions.rollout.torch_engine.attention import Attention
from functions.rollout.torch_engine.generic import TransformersDecoder
from functions.rollout.torch_engine.llama import LlamaDecoder


class Decoder(Protocol):
    """A model's forward pass that leaves keys and values to an `Attention`."""

    num_layers: int
    num_kv_heads: int
    head_dim: int

    def prefill(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> None:
        """Fills the cache for `token_ids` at `positions`, both `[N, P]`."""
        ...

    def decode(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits `[B, V]` of the token after each of `token_ids` `[B]` at `positions` `[B]`."""
        ...


def decoder_for(model: PreTrainedModel) -> Decoder:
    """The fastest forward pass that computes this model. Raises UnsupportedModel when there is none."""
    return LlamaDecoder(model) if LlamaDecoder.supports(model) else TransformersDecoder(model)
