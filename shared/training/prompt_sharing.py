"""One forward and backward pass in which completions of a prompt share its tokens.

The model sees one sequence of real tokens only: every distinct prompt once, then every completion. Layers that
work token by token need no more than that. Attention is told by a layout who sees whom: a prompt sees itself, a
completion its prompt and itself, as if each completion stood behind a copy of its prompt. So the result is that
of the plain pass, at about P + n·T instead of n·(P + T) tokens for a group of n.

There is no cache: keys and values of the prompt are gathered, and their gradients flow back through the gather.
(Merging two attention outputs by the log-sum-exp of CPU flash attention loses gradients, and gradient
checkpointing drops caches; both without a sign.)

Shapes: S real tokens; M trained tokens; H heads, K key/value heads, D head size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from shared.training.prompt_layout import AttentionBlock, SharedPromptLayout

ATTENTION_NAME = "shared_prompt"
VERIFIED_MODEL_TYPES = frozenset({"granite", "llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"})
"""Architectures whose gradients are tested against the plain pass. Others may hide a term from the attention
function (a bias by distance, say), so they take the plain pass."""


def supports_prompt_sharing(model: PreTrainedModel) -> bool:
    """Whether the shared pass is known to be exact for this model."""
    config: PretrainedConfig = model.config
    layer_types = set(getattr(config, "layer_types", None) or {"full_attention"})
    windowed = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None) is not None
    return config.model_type in VERIFIED_MODEL_TYPES and layer_types == {"full_attention"} and not windowed


@contextmanager
def shared_prompt_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model's attention follows the layout that a forward pass brings; backward belongs within too."""
    AttentionInterface.register(ATTENTION_NAME, _attend)
    before = model.config._attn_implementation
    model.set_attn_implementation(ATTENTION_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def predict_trained_tokens(model: PreTrainedModel, layout: SharedPromptLayout) -> Tensor:
    """Logits of every trained token of the layout's rows. [M, V]"""
    outputs = model(
        input_ids=layout.token_ids[None],
        position_ids=layout.position_ids[None],
        use_cache=False,
        logits_to_keep=layout.predictors,
        shared_prompt_layout=layout,
    )
    logits: Tensor = outputs.logits[0]
    return logits


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    shared_prompt_layout: SharedPromptLayout,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention by layout. query `[1, H, S, D]`, key and value `[1, K, S, D]` → `[1, S, H, D]`."""
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    blocks = [_attend_block(query, key, value, block, scaling) for block in shared_prompt_layout.blocks]
    return torch.cat(blocks).index_select(0, shared_prompt_layout.output_slots)[None], None


def _attend_block(query: Tensor, key: Tensor, value: Tensor, block: AttentionBlock, scaling: float | None) -> Tensor:
    """Attention of segments that are gathered from `[S, heads, D]`; their padded outputs in a line, `[b · n, H, D]`."""
    num_heads, head_size = query.shape[-2:]
    groups = num_heads // key.shape[-2]
    query_block = _gather(query, block.query_slots)
    key_block, value_block = _gather(key, block.key_slots), _gather(value, block.key_slots)
    # With a mask, CUDA has grouped heads in its slow kernel only; the CPU kernel has them and is faster so.
    native = groups > 1 and query.device.type == "cpu"
    if groups > 1 and not native:
        key_block, value_block = (states.repeat_interleave(groups, 1) for states in (key_block, value_block))
    outputs = scaled_dot_product_attention(
        query_block,
        key_block,
        value_block,
        attn_mask=block.key_mask,
        is_causal=block.key_mask is None,
        scale=scaling,
        enable_gqa=native,
    )
    return outputs.transpose(1, 2).reshape(-1, num_heads, head_size)


def _gather(states: Tensor, slots: Tensor) -> Tensor:
    """`[S, heads, D]` by slots `[b, length]` → `[b, heads, length, D]`."""
    flat = states.reshape(states.shape[0], -1).index_select(0, slots.reshape(-1))
    return flat.view(*slots.shape, *states.shape[1:]).transpose(1, 2)
