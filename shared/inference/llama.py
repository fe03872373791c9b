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
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from shared.inference.attention import Attention
from shared.inference.prefix_kv import KvLayout

_FAMILIES = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)  # SmolLM and SmolLM2 are Llama
_FIXED_ROPE = {"default", "linear", "llama3", "yarn"}  # the others change with the length of the batch


class LlamaDecoder:
    """Llama, SmolLM, Qwen2 (biases) and Qwen3 (normalised queries and keys); no sliding windows."""

    def __init__(self, model: PreTrainedModel, *, has_weights: bool = True) -> None:
        """Without weights, those of the model are not kept: they are loaded afterwards."""
        self._model: Any = model
        self._layers = [_Layer(layer, has_weights) for layer in self._model.model.layers]
        config = model.config
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self.num_heads = self._layers[0].num_q
        self.layout = KvLayout(
            num_layers=config.num_hidden_layers,
            num_kv_heads=config.num_key_value_heads,
            head_dim=self._layers[0].head_dim,
            dtype=str(model.dtype).removeprefix("torch."),
        )

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
        """Gives `attention` the keys and values of `token_ids` at `positions`, both `[N, P]`."""
        *layers, last = self._layers
        hidden, cos, signed_sin = self._embed(token_ids.flatten(), positions.flatten())
        for index, layer in enumerate(layers):
            hidden = layer.forward(index, hidden, cos, signed_sin, attention)
        # Of the last layer only keys and values are wanted.
        _, keys, values = last.heads(hidden, cos, signed_sin)
        attention.store(len(layers), keys, values)

    def decode(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits `[B, V]` of the token after each of `token_ids` `[B]` at `positions` `[B]`."""
        hidden, cos, signed_sin = self._embed(token_ids, positions)
        for index, layer in enumerate(self._layers):
            hidden = layer.forward(index, hidden, cos, signed_sin, attention)
        logits: Tensor = self._model.lm_head(_rms_norm(hidden, self._model.model.norm))
        return logits

    def _embed(self, token_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states `[T, hidden]`, and cosine and signed sine of the positions, `[T, 1, D]` each."""
        hidden = F.embedding(token_ids, self._model.model.embed_tokens.weight)
        rotary = self._model.model.rotary_emb
        # As the model's own module computes it, with the sign of rotate_half(x), x rolled by half with its first half
        # negated, kept in the sine.
        angles = positions[:, None, None] * rotary.inv_freq.float()
        cos, sin = angles.cos(), angles.sin()
        parts = (torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))
        scaled = (part * rotary.attention_scaling for part in parts) if rotary.attention_scaling != 1.0 else parts
        cos, signed_sin = (part.to(hidden.dtype) for part in scaled)
        return hidden, cos, signed_sin


class _Layer:
    """One decoder layer with its products fused."""

    def __init__(self, layer: Any, has_weights: bool) -> None:
        self._layer = layer
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim: int = attention.head_dim
        self._scale: float = attention.scaling
        self._qkv_weight, self._qkv_bias = _fuse((attention.q_proj, attention.k_proj, attention.v_proj), has_weights)
        self._gate_up_weight, self._gate_up_bias = _fuse((mlp.gate_proj, mlp.up_proj), has_weights)
        self.num_q: int = attention.q_proj.out_features // self.head_dim
        self._num_kv: int = attention.k_proj.out_features // self.head_dim
        self._normalises_heads = hasattr(attention, "q_norm")

    def forward(self, index: int, hidden: Tensor, cos: Tensor, signed_sin: Tensor, attention: Attention) -> Tensor:
        """Hidden states `[T, hidden]` after this layer; cosine and sine `[T, 1, D]`."""
        layer = self._layer
        queries, keys, values = self.heads(hidden, cos, signed_sin)
        mixed = attention.attend(index, queries, keys, values, self._scale, None)
        hidden = _add_projection(hidden, mixed, layer.self_attn.o_proj)
        normed = _rms_norm(hidden, layer.post_attention_layernorm)
        gate, up = F.linear(normed, self._gate_up_weight, self._gate_up_bias).chunk(2, dim=-1)
        return _add_projection(hidden, layer.mlp.act_fn(gate).mul_(up), layer.mlp.down_proj)

    def heads(self, hidden: Tensor, cos: Tensor, signed_sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[T, H, D]`, and keys and values `[T, K, D]`, of what enters this layer."""
        normed = _rms_norm(hidden, self._layer.input_layernorm)
        fused = F.linear(normed, self._qkv_weight, self._qkv_bias).view(hidden.shape[0], -1, self.head_dim)
        rotated = fused[:, : self.num_q + self._num_kv]
        if self._normalises_heads:
            attn = self._layer.self_attn
            queries, keys = rotated[:, : self.num_q], rotated[:, self.num_q :]
            rotated = torch.cat((_rms_norm(queries, attn.q_norm), _rms_norm(keys, attn.k_norm)), dim=1)
        rotated = torch.addcmul(rotated * cos, rotated.roll(self.head_dim // 2, dims=-1), signed_sin)
        return rotated[:, : self.num_q], rotated[:, self.num_q :], fused[:, self.num_q + self._num_kv :]


def _fuse(projections: tuple[Any, ...], has_weights: bool) -> tuple[Tensor, Tensor | None]:
    """One matrix (and bias) over all projections, which become views of it."""
    weights = [projection.weight.data for projection in projections]
    weight = _concatenate(weights, has_weights)
    bias = None
    if projections[0].bias is not None:
        bias = _concatenate([projection.bias.data for projection in projections], has_weights)
    start = 0
    for projection in projections:
        stop = start + projection.out_features
        projection.weight.data = weight[start:stop]
        if bias is not None:
            projection.bias.data = bias[start:stop]
        start = stop
    return weight, bias


def _concatenate(tensors: list[Tensor], has_weights: bool) -> Tensor:
    """Along the first dimension. Undefined numbers are not copied: that would touch their memory for nothing."""
    if has_weights:
        return torch.cat(tensors)
    return tensors[0].new_empty(sum(tensor.shape[0] for tensor in tensors), *tensors[0].shape[1:])


def _rms_norm(hidden: Tensor, norm: Any) -> Tensor:
    return F.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _add_projection(residual: Tensor, hidden: Tensor, projection: Any) -> Tensor:
    if projection.bias is not None:
        residual = residual + projection.bias
    return torch.addmm(residual, hidden, projection.weight.t())
