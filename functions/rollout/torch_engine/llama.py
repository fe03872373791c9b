"""The forward pass of Llama-like models without transformers around it.

For small models most of a decoded token's time is Python, and this pass has little of it: query, key and value
are one product, gate and up another, and residuals are added by the products that feed them. The parameters
stay those of the transformers model: each fused matrix is the storage that its parts are views of, so loading
weights into the model changes what is computed here.

Shapes: T = tokens of the pass, H / K = query / key-value heads, D = head size, V = vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from functions.rollout.torch_engine.attention import Attention

_FAMILIES = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)  # SmolLM and SmolLM2 are Llama
_FIXED_ROPE = {"default", "linear", "llama3", "yarn"}  # the others change with the length of the batch


class LlamaDecoder:
    """Llama, SmolLM, Qwen2 (biases) and Qwen3 (normalised queries and keys); no sliding windows."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model: Any = model
        self._layers = [_Layer(layer) for layer in self._model.model.layers]
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.num_kv_heads: int = config.num_key_value_heads
        self.head_dim: int = self._layers[0].head_dim

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Whether this pass computes exactly this model."""
        config = model.config
        layer_types = getattr(config, "layer_types", None) or []
        return (
            type(model) in _FAMILIES
            and all(layer_type == "full_attention" for layer_type in layer_types)
            and config.rope_parameters["rope_type"] in _FIXED_ROPE
        )

    def prefill(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> None:
        """Fills the cache for `token_ids` at `positions`, both `[N, P]`."""
        self._hidden_states(token_ids.flatten(), positions.flatten(), attention)

    def decode(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits `[B, V]` of the token after each of `token_ids` `[B]` at `positions` `[B]`."""
        hidden = self._hidden_states(token_ids, positions, attention)
        return self._model.lm_head(_rms_norm(hidden, self._model.model.norm))

    def _hidden_states(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        hidden = F.embedding(token_ids, self._model.model.embed_tokens.weight)
        cos, sin = self._model.model.rotary_emb(hidden, positions[:, None])
        half = cos.shape[-1] // 2
        # rotate_half(x) is x rolled by half with its first half negated; the sign is kept in the sine.
        signed_sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
        for index, layer in enumerate(self._layers):
            hidden = layer.forward(index, hidden, cos, signed_sin, attention)
        return hidden


class _Layer:
    """One decoder layer with its products fused."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer: Any = layer
        attention, mlp = self._layer.self_attn, self._layer.mlp
        self.head_dim: int = attention.head_dim
        self._qkv_weight, self._qkv_bias = _fuse(attention.q_proj, attention.k_proj, attention.v_proj)
        self._gate_up_weight, self._gate_up_bias = _fuse(mlp.gate_proj, mlp.up_proj)
        self._num_q = attention.q_proj.out_features // self.head_dim
        self._num_kv = attention.k_proj.out_features // self.head_dim
        self._normalises_heads = hasattr(attention, "q_norm")

    def forward(self, index: int, hidden: Tensor, cos: Tensor, signed_sin: Tensor, attention: Attention) -> Tensor:
        """Hidden states `[T, hidden]` after this layer; cos and sine `[T, 1, D]`."""
        attn, mlp = self._layer.self_attn, self._layer.mlp
        normed = _rms_norm(hidden, self._layer.input_layernorm)
        heads = F.linear(normed, self._qkv_weight, self._qkv_bias).unflatten(-1, (-1, self.head_dim))
        rotated, values = heads.split((self._num_q + self._num_kv, self._num_kv), dim=1)
        if self._normalises_heads:
            queries, keys = rotated.split((self._num_q, self._num_kv), dim=1)
            rotated = torch.cat((_rms_norm(queries, attn.q_norm), _rms_norm(keys, attn.k_norm)), dim=1)
        rotated = torch.addcmul(rotated * cos, rotated.roll(self.head_dim // 2, dims=-1), signed_sin)
        queries, keys = rotated.split((self._num_q, self._num_kv), dim=1)
        mixed = attention.attend(index, queries, keys, values, attn.scaling, None)
        hidden = _add_projection(hidden, mixed, attn.o_proj)
        normed = _rms_norm(hidden, self._layer.post_attention_layernorm)
        gate, up = F.linear(normed, self._gate_up_weight, self._gate_up_bias).chunk(2, dim=-1)
        return _add_projection(hidden, mlp.act_fn(gate).mul_(up), mlp.down_proj)


def _fuse(*projections: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """One matrix (and bias) over all projections, which become views of it."""
    weight = torch.cat([projection.weight.data for projection in projections])
    bias = None if projections[0].bias is None else torch.cat([p.bias.data for p in projections])
    start = 0
    for projection in projections:
        stop = start + projection.out_features
        projection.weight.data = weight[start:stop]
        if bias is not None:
            projection.bias.data = bias[start:stop]
        start = stop
    return weight, bias


def _rms_norm(hidden: Tensor, norm: Any) -> Tensor:
    return F.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _add_projection(residual: Tensor, hidden: Tensor, projection: nn.Linear) -> Tensor:
    if projection.bias is not None:
        residual = residual + projection.bias
    return torch.addmm(residual, hidden, projection.weight.t())
