"""What several running sequences begin with: computed once, kept once, attended to once.

Segments of similar length and number of sequences lie in one slab, so that one batched product serves them all.

Shapes: L = layers, N = segments in a slab, K = key-value heads, S = tokens of the longest of them, D = head size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared.inference.prefix_kv import KvLayout
from shared.inference.prefix_tree import Segment


class Slab:
    """Segments 0..N-1; where one leaves, the last one takes its place."""

    def __init__(self, layout: KvLayout, dtype: torch.dtype, device: torch.device) -> None:
        self._layout = layout
        self._dtype, self._device = dtype, device
        self.segments: list[Segment] = []
        self.keys = self._allocate(0, 0)
        """`[L, capacity, K, S, D]`; of a segment shorter than S, zeros at its end."""
        self.values = self._allocate(0, 0)

    def add(self, segments: Sequence[Segment]) -> None:
        """Takes over the keys and values of segments, which become views of the slab."""
        first = len(self.segments)
        self._reserve(first + len(segments), max(len(segment.token_ids) for segment in segments))
        for slot, segment in enumerate(segments, first):
            keys, values = segment.kv
            self.keys[:, slot, :, : keys.shape[2]] = keys
            self.values[:, slot, :, : values.shape[2]] = values
        self.segments += segments
        self._show()

    def remove(self, segment: Segment) -> None:
        """Forgets a segment."""
        slot, last = self.segments.index(segment), len(self.segments) - 1
        for tensor in (self.keys, self.values):
            tensor[:, slot] = tensor[:, last]
        self.segments[slot] = self.segments[last]
        self.segments.pop()
        segment.keys = segment.values = None
        self._show()

    def _show(self) -> None:
        """Points every segment at its place."""
        for slot, segment in enumerate(self.segments):
            tokens = slice(len(segment.token_ids))
            segment.keys, segment.values = self.keys[:, slot, :, tokens], self.values[:, slot, :, tokens]

    def _reserve(self, num_segments: int, num_tokens: int) -> None:
        _, capacity, _, tokens, _ = self.keys.shape
        if num_segments <= capacity and num_tokens <= tokens:
            return
        old_keys, old_values = self.keys, self.values
        if num_segments > capacity:
            capacity = max(num_segments, 2 * capacity)
        self.keys, self.values = (self._allocate(capacity, max(num_tokens, tokens)) for _ in range(2))
        self.keys[:, : old_keys.shape[1], :, :tokens] = old_keys
        self.values[:, : old_values.shape[1], :, :tokens] = old_values

    def _allocate(self, num_segments: int, num_tokens: int) -> Tensor:
        layout = self._layout
        shape = (layout.num_layers, num_segments, layout.num_kv_heads, num_tokens, layout.head_dim)
        return torch.zeros(shape, dtype=self._dtype, device=self._device)


SlabKey = tuple[int, int, int]


@dataclass(slots=True, kw_only=True, eq=False)
class _Node:
    """A segment that is kept, and what keeps it."""

    segment: Segment
    slab: SlabKey
    parent: "_Node | None"
    children: list["_Node"] = field(default_factory=list)
    num_sequences: int = 0
    """Those that share nothing beyond this segment."""


class SharedPrefixes:
    """The tree of kept segments. Each stays for as long as a sequence goes through it."""

    def __init__(self, layout: KvLayout, dtype: torch.dtype, device: torch.device) -> None:
        self._options = (layout, dtype, device)
        self.clear()

    def clear(self) -> None:
        """Forgets all segments."""
        self._nodes: dict[Segment, _Node] = {}
        self._roots: list[_Node] = []
        self._slabs: dict[SlabKey, Slab] = {}

    @property
    def slabs(self) -> Iterator[Slab]:
        """Those that are in use."""
        return iter(self._slabs.values())

    def find(self, token_ids: tuple[int, ...]) -> Segment | None:
        """The last kept segment that these tokens go through from their beginning to its end."""
        found: Segment | None = None
        nodes = self._roots
        while node := next((node for node in nodes if _goes_through(token_ids, node.segment)), None):
            found, nodes = node.segment, node.children
        return found

    def keep(self, segments: Sequence[Segment]) -> None:
        """Takes computed segments, each after its parent, which must be kept too. Acquire them next."""
        by_slab: dict[SlabKey, list[Segment]] = {}
        for segment in segments:
            parent = self._nodes[segment.parent] if segment.parent else None
            node = _Node(segment=segment, slab=_slab_key(segment), parent=parent)
            self._nodes[segment] = node
            (parent.children if parent else self._roots).append(node)
            by_slab.setdefault(node.slab, []).append(segment)
        for key, some in by_slab.items():
            if key not in self._slabs:
                self._slabs[key] = Slab(*self._options)
            self._slabs[key].add(some)

    def acquire(self, segment: Segment) -> None:
        """One more sequence shares everything up to this segment."""
        self._nodes[segment].num_sequences += 1

    def release(self, segment: Segment) -> None:
        """One sequence less; segments that no other goes through are forgotten."""
        self._nodes[segment].num_sequences -= 1
        node: _Node | None = self._nodes[segment]
        while node and not node.num_sequences and not node.children:
            (node.parent.children if node.parent else self._roots).remove(node)
            del self._nodes[node.segment]
            slab = self._slabs[node.slab]
            slab.remove(node.segment)
            if not slab.segments:
                del self._slabs[node.slab]
            node = node.parent


def _goes_through(token_ids: tuple[int, ...], segment: Segment) -> bool:
    """Whether a sequence that has what comes before a segment has the segment too."""
    start, end = segment.start, segment.end
    if end > len(token_ids) or token_ids[start] != segment.token_ids[0]:
        return False
    return token_ids[start:end] == segment.token_ids


def _slab_key(segment: Segment) -> SlabKey:
    """Of one slab are segments whose padding to the longest, and to the one with most sequences, is bounded: by factors
    of 2 and, when they are added, 8. A sequence goes through one of them at most: they are equally deep."""
    depth = len(segment.chain())
    return depth, len(segment.token_ids).bit_length(), (len(segment.users).bit_length() - 1) // 3
