"""The forward pass of any other causal model: the transformers model itself, with its attention replaced.

transformers lets a model's attention be swapped for a registered function, which here reads and writes the
engine's own cache. Masks, positions and everything else stay the model's business; no transformers cache is
involved.

Shapes: N = prefixes, P = their padded length, B = running rows, H / K = query / key-value heads, D = head size.
"""

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from shared.inference.attention import Attention
from shared.inference.prefix_kv import KvLayout
from shared.modeling.errors import UnsupportedModel

_IMPLEMENTATION = "rlhfless_rollout"
_ATTENTION: ContextVar[Attention] = ContextVar("attention")
# Arguments that change what attention computes and that `Attention` does not know.
_UNKNOWN_ARGUMENTS = ("softcap", "s_aux", "position_bias")
_KNOWN_LAYERS = {"full_attention", "sliding_attention"}


class TransformersDecoder:
    """Decoder-only models whose layers all keep keys and values and use transformers' attention interface."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config()
        layer_types = set(getattr(config, "layer_types", None) or [])
        if not model._supports_attention_backend or layer_types - _KNOWN_LAYERS:
            raise UnsupportedModel(
                f"The torch engine cannot generate with {type(model).__name__}: its layers do not all use "
                "transformers' attention interface. Use a rollout image with another engine."
            )
        model.set_attn_implementation(_IMPLEMENTATION)
        self._model: Any = model
        probe = _Probe()
        token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
        self.prefill(token, token, probe)
        if len(set(probe.shapes)) != 1:
            raise UnsupportedModel(f"The layers of {type(model).__name__} differ in key-value heads.")
        num_kv_heads, head_dim = probe.shapes[0]
        self.num_heads = probe.num_heads
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self.layout = KvLayout(
            num_layers=len(probe.shapes),
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=str(model.dtype).removeprefix("torch."),
        )

    @torch.inference_mode()
    def prefill(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> None:
        """Gives `attention` the keys and values of `token_ids` at `positions`, both `[N, P]`."""
        self._run(self._model.base_model, token_ids, positions, attention)

    @torch.inference_mode()
    def decode(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Logits `[B, V]` of the token after each of `token_ids` `[B]` at `positions` `[B]`."""
        logits: Tensor = self._run(self._model, token_ids[:, None], positions[:, None], attention).logits
        return logits[:, -1]

    def _run(self, module: Any, token_ids: Tensor, positions: Tensor, attention: Attention) -> Any:
        reset = _ATTENTION.set(attention)
        try:
            return module(input_ids=token_ids, position_ids=positions, use_cache=False)
        finally:
            _ATTENTION.reset(reset)


class _Probe:
    """Learns the heads of every layer, and their size, from one pass."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.num_heads = 0

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        self.shapes.append((keys.shape[1], keys.shape[2]))
        self.num_heads = queries.shape[1]
        return queries.flatten(1)

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """See `Attention`."""


def _attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """transformers' attention signature: query `[N, H, P, D]`, key and value `[N, K, P, D]` to `[N, P, H, D]`."""
    unknown = [name for name in _UNKNOWN_ARGUMENTS if arguments.get(name) is not None]
    if unknown:
        raise UnsupportedModel(f"The torch engine does not compute attention with {', '.join(unknown)}.")
    queries, keys, values = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    output = _ATTENTION.get().attend(layer, queries, keys, values, scale, sliding_window)
    return output.view(query.shape[0], query.shape[2], query.shape[1], -1), None


AttentionInterface.register(_IMPLEMENTATION, _attention_forward)
