"""Where every token of some rows stands when equal prompts are held once, and who sees whom.

Shapes: U distinct prompts; R rows, each with a completion input (all its tokens but the last); S real tokens;
M trained tokens; b segments of a block, n its longest query, m its longest key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shared.training.attention_blocks import similar_segments
from shared.training.rows import SequenceRow

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionBlock:
    """Segments of similar length that attend in one call. Padding repeats a real token."""

    query_slots: Tensor
    """[b, n]"""
    key_slots: Tensor
    """[b, m]"""
    key_mask: Tensor | None
    """[b or 1, 1, n, m] True where a query sees a key; None: each query sees the keys up to its own place."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedPromptLayout:
    """One flat sequence: every distinct prompt, then every completion input."""

    token_ids: Tensor
    """[S]"""
    position_ids: Tensor
    """[S] positions as in the plain sequence."""
    blocks: tuple[AttentionBlock, ...]
    output_slots: Tensor
    """[S] where each token's output lies in the blocks' outputs, one behind the other."""
    predictors: Tensor
    """[M] the token whose logits predict each trained token, rows one behind the other."""


def build_layout(rows: Sequence[SequenceRow], device: torch.device) -> SharedPromptLayout:
    """The layout of some rows; prompts of equal tokens are held once, whatever group they belong to."""
    prompts, prompt_of = _distinct_prompts(rows)
    inputs = [row.completion_token_ids[:-1] for row in rows]
    prompt_lengths, input_lengths = _sizes(prompts), _sizes(inputs)
    starts = _starts(np.concatenate([prompt_lengths, input_lengths]))
    prompt_starts, input_starts = starts[: len(prompts)], starts[len(prompts) :]
    prefix_lengths = prompt_lengths[prompt_of]

    def to_device(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    blocks, outputs = [], []
    for segments in similar_segments([0] * len(prompts), prompt_lengths.tolist()):
        slots = to_device(_padded_slots(prompt_starts[segments], prompt_lengths[segments]))
        blocks.append(AttentionBlock(query_slots=slots, key_slots=slots, key_mask=None))
        outputs.append(_real(prompt_starts[segments], prompt_lengths[segments]))
    for segments in similar_segments(prefix_lengths.tolist(), input_lengths.tolist()):
        own = _padded_slots(input_starts[segments], input_lengths[segments])
        seen = prompt_of[segments]
        prefix = _padded_slots(prompt_starts[seen], prompt_lengths[seen])
        mask = _key_mask(prompt_lengths[seen], prefix.shape[1], own.shape[1])
        blocks.append(
            AttentionBlock(
                query_slots=to_device(own),
                key_slots=to_device(np.concatenate([prefix, own], axis=1)),
                key_mask=to_device(mask),
            )
        )
        outputs.append(_real(input_starts[segments], input_lengths[segments]))

    positions = [np.arange(length) for length in prompt_lengths]
    positions += [prefix + np.arange(n) for prefix, n in zip(prefix_lengths, input_lengths, strict=True)]
    return SharedPromptLayout(
        token_ids=to_device(np.concatenate([*prompts, *inputs])),
        position_ids=to_device(np.concatenate(positions)),
        blocks=tuple(blocks),
        output_slots=to_device(_output_slots(outputs)),
        predictors=to_device(_predictors(rows, prompt_starts[prompt_of] + prefix_lengths - 1, input_starts)),
    )


def _distinct_prompts(rows: Sequence[SequenceRow]) -> tuple[list[NDArray[np.integer[Any]]], Indices]:
    """Distinct prompts in order of appearance, and which of them each row has. [R]"""
    numbers: dict[bytes, int] = {}
    prompts: list[NDArray[np.integer[Any]]] = []
    for row in rows:
        if numbers.setdefault(row.prompt_token_ids.tobytes(), len(numbers)) == len(prompts):
            prompts.append(row.prompt_token_ids)
    return prompts, np.array([numbers[row.prompt_token_ids.tobytes()] for row in rows])


def _sizes(arrays: Sequence[NDArray[Any]]) -> Indices:
    return np.array([array.size for array in arrays], dtype=np.int64)


def _starts(lengths: Indices) -> Indices:
    return np.cumsum(lengths) - lengths


def _padded_slots(starts: Indices, lengths: Indices) -> Indices:
    """Slots `start, start + 1, …` of every segment, padded by its last one. [b, longest]"""
    return starts[:, None] + np.minimum(np.arange(lengths.max())[None, :], lengths[:, None] - 1)


def _real(starts: Indices, lengths: Indices) -> Indices:
    """Of a block's padded outputs `[b, longest]`: the slot that each is for, −1 where it is padding. [b · longest]"""
    steps = np.arange(lengths.max())[None, :]
    return np.where(steps < lengths[:, None], starts[:, None] + steps, -1).reshape(-1)


def _output_slots(outputs: Sequence[Indices]) -> Indices:
    """For every slot where its output is, in all blocks' outputs. [S]"""
    slots = np.concatenate(outputs)
    real = np.flatnonzero(slots >= 0)
    places = np.empty(real.size, dtype=np.int64)
    places[slots[real]] = real
    return places


def _key_mask(prefix_lengths: Indices, longest_prefix: int, longest_input: int) -> NDArray[np.bool_]:
    """A completion's query sees its whole prompt, and its own tokens up to itself. [b or 1, 1, n, m]"""
    if prefix_lengths.min() == prefix_lengths.max():
        prefix_lengths = prefix_lengths[:1]
    shape = (len(prefix_lengths), 1, longest_input)
    in_prompt = np.arange(longest_prefix) < prefix_lengths[:, None, None, None]
    causal = np.tri(longest_input, dtype=np.bool_)
    return np.concatenate(
        [
            np.broadcast_to(in_prompt, (*shape, longest_prefix)),
            np.broadcast_to(causal, (*shape, longest_input)),
        ],
        axis=-1,
    )


def _predictors(rows: Sequence[SequenceRow], last_prompt_slots: Indices, input_starts: Indices) -> Indices:
    """The first completion token is predicted by the prompt's last token, any other by the one before it. [M]"""
    slots = []
    for row, last_prompt_slot, start in zip(rows, last_prompt_slots, input_starts, strict=True):
        before = np.concatenate([[last_prompt_slot], start + np.arange(row.num_tokens - 1)])
        slots.append(before[row.loss_mask])
    return np.concatenate(slots)
