"""Keys and values of several prefixes: every distinct one once, and what they have in common once.

Shapes: L = layers, N = segments of a pass, P = their padded length, C = the longest past, K = key-value heads,
D = head size.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from shared.inference.attention import ExtendAttention, Past
from shared.inference.decoder import Decoder
from shared.inference.distinct_prefixes import common_length
from shared.inference.prefix_kv import ComputedPrefix, PrefixKv
from shared.inference.prefix_tree import Segment, Sharing, TreePrefix, grow

PASS_TOKENS = 8192
"""Padded tokens of one forward pass; bounds the memory that it needs beside the keys and values."""


class KnownPrefixes:
    """Prefixes that have been computed before, to begin from."""

    def __init__(self, prefixes: Sequence[ComputedPrefix] = ()) -> None:
        self._prefixes = sorted(prefixes, key=lambda prefix: prefix.token_ids)
        self._token_ids = [prefix.token_ids for prefix in self._prefixes]

    def __bool__(self) -> bool:
        return bool(self._prefixes)

    def longest(self, token_ids: tuple[int, ...]) -> tuple[int, ComputedPrefix | None]:
        """How many tokens are known of the beginning of these, and by which prefix."""
        at = bisect_left(self._token_ids, token_ids)
        # In sorted order, the one with the most in common is beside them.
        lengths = [
            (common_length(token_ids, self._token_ids[index]), index)
            for index in (at - 1, at)
            if 0 <= index < len(self._token_ids)
        ]
        length, index = max(lengths, default=(0, 0))
        return length, self._prefixes[index] if length else None


@torch.inference_mode()
def compute_prefixes(
    decoder: Decoder,
    prefixes: Sequence[Sequence[int]],
    known: Sequence[ComputedPrefix] = (),
    sharing: Sharing | None = None,
) -> list[PrefixKv]:
    """Keys and values of each prefix, in order and in tensors of its own; equal ones are the same object.

    As ``compute_tree``, which holds once what prefixes share. An empty prefix has keys of no token.
    """
    computed, _ = compute_tree(decoder, prefixes, known, sharing)
    made: dict[tuple[int, ...], PrefixKv] = {}
    for prefix in computed:
        if prefix.token_ids not in made:
            keys, values = joined(prefix.last, decoder)
            made[prefix.token_ids] = PrefixKv(token_ids=prefix.token_ids, keys=keys, values=values)
    return [made[prefix.token_ids] for prefix in computed]


@torch.inference_mode()
def compute_tree(
    decoder: Decoder,
    prefixes: Sequence[Sequence[int]],
    known: Sequence[ComputedPrefix] = (),
    sharing: Sharing | None = None,
) -> tuple[list[TreePrefix], int]:
    """Each prefix, in order, and how many tokens that took.

    What `known` has of their beginnings is copied; it must be of the decoder's layout and its weights.
    """
    token_ids = [tuple(prefix) for prefix in prefixes]
    segments, last = grow(token_ids, sharing or Sharing())
    num_computed = compute_segments(decoder, segments, KnownPrefixes(known))
    layout = decoder.layout
    computed = [
        TreePrefix(token_ids=prefix, layout=layout, last=segment)
        for prefix, segment in zip(token_ids, last, strict=True)
    ]
    return computed, num_computed


def compute_segments(decoder: Decoder, segments: Sequence[Segment], known: KnownPrefixes) -> int:
    """Fills in the keys and values of segments that come after their parents, and returns how many tokens that took.

    A segment above them that is not among them has its own already.
    """
    tasks = [_Task.of(segment, known) for segment in segments]
    for task in tasks:
        task.allocate(decoder)
    for some in _passes([task for task in tasks if task.num_new]):
        _run(decoder, some)
    return sum(task.num_new for task in tasks)


@dataclass(slots=True, kw_only=True)
class _Task:
    """One segment to compute, but for the tokens that are known."""

    segment: Segment
    num_known: int
    known: ComputedPrefix | None

    @classmethod
    def of(cls, segment: Segment, known: KnownPrefixes) -> "_Task":
        if not known:
            return cls(segment=segment, num_known=0, known=None)
        above = segment.parent.chain() if segment.parent else []
        path = tuple(token_id for part in (*above, segment) for token_id in part.token_ids)
        length, prefix = known.longest(path)
        return cls(segment=segment, num_known=max(0, length - segment.start), known=prefix)

    @property
    def num_new(self) -> int:
        return len(self.segment.token_ids) - self.num_known

    @property
    def past_tokens(self) -> int:
        return self.segment.start + self.num_known

    def allocate(self, decoder: Decoder) -> None:
        """Makes room for the segment, and copies what is known."""
        layout, segment = decoder.layout, self.segment
        shape = (layout.num_layers, layout.num_kv_heads, len(segment.token_ids), layout.head_dim)
        segment.keys = torch.empty(shape, dtype=decoder.dtype, device=decoder.device)
        segment.values = torch.empty_like(segment.keys)
        if self.known and self.num_known:
            keys, values = self.known.between(segment.start, self.past_tokens)
            segment.keys[:, :, : self.num_known] = keys
            segment.values[:, :, : self.num_known] = values

    def past(self, layer: int) -> tuple[Tensor, Tensor]:
        """What comes before the tokens to compute, `[K, C, D]` each."""
        keys, values = self.segment.kv
        above = [part.kv for part in (self.segment.parent.chain() if self.segment.parent else [])]
        return (
            torch.cat([*(part[layer] for part, _ in above), keys[layer, :, : self.num_known]], dim=1),
            torch.cat([*(part[layer] for _, part in above), values[layer, :, : self.num_known]], dim=1),
        )


def _passes(tasks: Sequence[_Task]) -> Iterator[list[_Task]]:
    """Which tasks are computed in one forward pass: of similar length, so that little of it is padding, and after
    their parents."""
    by_depth: dict[tuple[int, bool], list[_Task]] = {}
    for task in tasks:
        depth = len(task.segment.chain())
        by_depth.setdefault((depth, task.past_tokens > 0), []).append(task)
    for _, level in sorted(by_depth.items()):
        some: list[_Task] = []
        for task in sorted(level, key=lambda task: task.num_new):
            if some and (len(some) + 1) * task.num_new > PASS_TOKENS:
                yield some
                some = []
            some.append(task)
        yield some


def _run(decoder: Decoder, tasks: list[_Task]) -> None:
    """One forward pass."""
    device = decoder.device
    lengths = torch.tensor([task.num_new for task in tasks], device=device)
    new = [torch.tensor(task.segment.token_ids[task.num_known :]) for task in tasks]
    token_ids = pad_sequence(new, batch_first=True).to(device)
    past_lengths = [task.past_tokens for task in tasks]
    steps = torch.arange(token_ids.shape[1], device=device).minimum(lengths[:, None] - 1)
    positions = torch.tensor(past_lengths, device=device)[:, None] + steps

    def store(layer: int, keys: Tensor, values: Tensor) -> None:
        for index, task in enumerate(tasks):
            into_keys, into_values = task.segment.kv
            into_keys[layer, :, task.num_known :] = keys[index, :, : task.num_new]
            into_values[layer, :, task.num_known :] = values[index, :, : task.num_new]

    past = _past(tasks) if any(past_lengths) else None
    decoder.prefill(token_ids, positions, ExtendAttention(past_lengths, token_ids.shape[1], past, store))


def _past(tasks: list[_Task]) -> Past:
    """The pasts of one pass, padded."""
    parents = {id(task.segment.parent) for task in tasks}
    if len(parents) == 1 and not any(task.num_known for task in tasks):

        def common_past(layer: int) -> tuple[Tensor, Tensor]:
            keys, values = tasks[0].past(layer)
            return keys.expand(len(tasks), -1, -1, -1), values.expand(len(tasks), -1, -1, -1)

        return common_past

    def past(layer: int) -> tuple[Tensor, Tensor]:
        parts = [task.past(layer) for task in tasks]
        return padded([keys for keys, _ in parts]), padded([values for _, values in parts])

    return past


def padded(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors `[K, C_i, D]` as `[N, K, C, D]`, zeros after each."""
    by_token = pad_sequence([tensor.transpose(0, 1) for tensor in tensors], batch_first=True)
    return by_token.transpose(1, 2)


def joined(segment: Segment | None, decoder: Decoder) -> tuple[Tensor, Tensor]:
    """A copy of the keys and values from the first token to the end of a segment, `[L, K, P, D]` each."""
    if segment is None:
        layout = decoder.layout
        empty = torch.empty(
            layout.num_layers, layout.num_kv_heads, 0, layout.head_dim, dtype=decoder.dtype, device=decoder.device
        )
        return empty, empty
    parts = [part.kv for part in segment.chain()]
    return torch.cat([keys for keys, _ in parts], dim=2), torch.cat([values for _, values in parts], dim=2)
