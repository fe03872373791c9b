"""One forward and backward pass in which completions of a prompt share its tokens.

The model sees one sequence of real tokens only: every distinct prompt once, then every completion. Layers that
work token by token need no more than that. Attention is told by a layout who sees whom: a prompt sees itself, a
completion its prompt and itself, as if each completion stood behind a copy of its prompt. So the result is that
of the plain pass, at about P + n·T instead of n·(P + T) tokens for a group of n.

There is no cache: keys and values of the prompt are gathered, and their gradients flow back through the gather.
(Merging two attention outputs by the log-sum-exp of CPU flash attention loses gradients, and gradient
checkpointing drops caches; both without a sign.)

Shapes: U distinct prompts, P longest prompt; R rows, N longest completion input (all its tokens but the last);
S real tokens; M trained tokens; H heads, K key/value heads, D head size.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from shared.training.rows import SequenceRow

ATTENTION_NAME = "shared_prompt"
VERIFIED_MODEL_TYPES = frozenset({"granite", "llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"})
"""Architectures whose gradients are tested against the plain pass. Others may hide a term from the attention
function (a bias by distance, say), so they take the plain pass."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedPromptLayout:
    """Where every token of the flat sequence stands, as index tensors. Padding repeats a real token."""

    token_ids: Tensor
    """[S]"""
    position_ids: Tensor
    """[S] positions as in the plain sequence."""
    prompt_slots: Tensor
    """[U, P]"""
    query_slots: Tensor
    """[R, N]"""
    key_slots: Tensor
    """[R, P + N] the row's prompt, then its completion."""
    key_mask: Tensor
    """[R or 1, 1, N, P + N] True where a query sees a key."""
    real_slots: Tensor
    """[S] where each token's output lies in the U·P prompt and R·N completion outputs, one behind the other."""
    predictors: Tensor
    """[M] the token whose logits predict each trained token, rows one behind the other."""


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


def build_layout(rows: Sequence[SequenceRow], device: torch.device) -> SharedPromptLayout:
    """The layout of some rows; prompts of equal tokens are held once, whatever group they belong to."""
    prompts, prompt_of = _distinct_prompts(rows)
    inputs = [row.completion_token_ids[:-1] for row in rows]
    prompt_lengths = np.array([prompt.size for prompt in prompts])
    input_lengths = np.array([tokens.size for tokens in inputs])
    prompt_starts = np.cumsum(prompt_lengths) - prompt_lengths
    input_starts = np.cumsum(input_lengths) - input_lengths + prompt_lengths.sum()
    row_prompt_lengths = prompt_lengths[prompt_of]

    prompt_slots = _padded_slots(prompt_starts, prompt_lengths)
    query_slots = _padded_slots(input_starts, input_lengths)
    num_prompts, longest_prompt = prompt_slots.shape
    longest_input = query_slots.shape[1]
    positions = [np.arange(length) for length in prompt_lengths]
    positions += [start + np.arange(n) for start, n in zip(row_prompt_lengths, input_lengths, strict=True)]
    real = [u * longest_prompt + np.arange(n) for u, n in enumerate(prompt_lengths)]
    offset = num_prompts * longest_prompt
    real += [offset + r * longest_input + np.arange(n) for r, n in enumerate(input_lengths)]

    def to_device(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return SharedPromptLayout(
        token_ids=to_device(np.concatenate([*prompts, *inputs])),
        position_ids=to_device(np.concatenate(positions)),
        prompt_slots=to_device(prompt_slots),
        query_slots=to_device(query_slots),
        key_slots=to_device(np.concatenate([prompt_slots[prompt_of], query_slots], axis=1)),
        key_mask=to_device(_key_mask(row_prompt_lengths, longest_prompt, longest_input)),
        real_slots=to_device(np.concatenate(real)),
        predictors=to_device(_predictors(rows, prompt_starts[prompt_of] + row_prompt_lengths - 1, input_starts)),
    )


def _distinct_prompts(rows: Sequence[SequenceRow]) -> tuple[list[NDArray[np.integer[Any]]], NDArray[np.int64]]:
    """Distinct prompts in order of appearance, and which of them each row has. [R]"""
    numbers: dict[bytes, int] = {}
    prompts: list[NDArray[np.integer[Any]]] = []
    for row in rows:
        if numbers.setdefault(row.prompt_token_ids.tobytes(), len(numbers)) == len(prompts):
            prompts.append(row.prompt_token_ids)
    return prompts, np.array([numbers[row.prompt_token_ids.tobytes()] for row in rows])


def _padded_slots(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Slots `start, start + 1, …` of every segment, padded by its last one (slot 0 for an empty segment)."""
    steps = np.minimum(np.arange(lengths.max())[None, :], lengths[:, None] - 1)
    return np.where(lengths[:, None] > 0, starts[:, None] + steps, 0)


def _key_mask(prompt_lengths: NDArray[np.int64], longest_prompt: int, longest_input: int) -> NDArray[np.bool_]:
    """A completion's query sees its whole prompt, and its own tokens up to itself. [R or 1, 1, N, P + N]"""
    if prompt_lengths.min() == prompt_lengths.max():
        prompt_lengths = prompt_lengths[:1]
    shape = (len(prompt_lengths), 1, longest_input)
    in_prompt = np.arange(longest_prompt) < prompt_lengths[:, None, None, None]
    causal = np.tri(longest_input, dtype=np.bool_)
    return np.concatenate(
        [
            np.broadcast_to(in_prompt, (*shape, longest_prompt)),
            np.broadcast_to(causal, (*shape, longest_input)),
        ],
        axis=-1,
    )


def _predictors(
    rows: Sequence[SequenceRow], last_prompt_slots: NDArray[np.int64], input_starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first completion token is predicted by the prompt's last token, any other by the one before it. [M]"""
    slots = []
    for row, last_prompt_slot, start in zip(rows, last_prompt_slots, input_starts, strict=True):
        before = np.concatenate([[last_prompt_slot], start + np.arange(row.num_tokens - 1)])
        slots.append(before[row.loss_mask])
    return np.concatenate(slots)


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
    layout = shared_prompt_layout
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    prompt_outputs = _attend_blocks(
        query, key, value, layout.prompt_slots, layout.prompt_slots, scale=scaling, is_causal=True
    )
    if layout.query_slots.numel() == 0:
        return prompt_outputs.index_select(0, layout.real_slots)[None], None
    completion_outputs = _attend_blocks(
        query, key, value, layout.query_slots, layout.key_slots, scale=scaling, attn_mask=layout.key_mask
    )
    outputs = torch.cat([prompt_outputs, completion_outputs])
    return outputs.index_select(0, layout.real_slots)[None], None


def _attend_blocks(
    query: Tensor, key: Tensor, value: Tensor, query_slots: Tensor, key_slots: Tensor, **options: Any
) -> Tensor:
    """Attention of padded blocks that are gathered from `[S, heads, D]`; their outputs in a line, `[blocks, H, D]`."""
    num_heads, head_size = query.shape[-2:]
    groups = num_heads // key.shape[-2]
    query_blocks = _gather(query, query_slots)
    key_blocks, value_blocks = _gather(key, key_slots), _gather(value, key_slots)
    # With a mask, CUDA has grouped heads in its slow kernel only; the CPU kernel has them and is faster so.
    native = groups > 1 and query.device.type == "cpu"
    if groups > 1 and not native:
        key_blocks, value_blocks = (states.repeat_interleave(groups, 1) for states in (key_blocks, value_blocks))
    outputs = scaled_dot_product_attention(query_blocks, key_blocks, value_blocks, enable_gqa=native, **options)
    return outputs.transpose(1, 2).reshape(-1, num_heads, head_size)


def _gather(states: Tensor, slots: Tensor) -> Tensor:
    """`[S, heads, D]` by slots `[blocks, length]` → `[blocks, heads, length, D]`."""
    flat = states.reshape(states.shape[0], -1).index_select(0, slots.reshape(-1))
    return flat.view(*slots.shape, *states.shape[1:]).transpose(1, 2)
