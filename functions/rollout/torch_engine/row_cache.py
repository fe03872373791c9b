"""Keys and values of the tokens that are one sequence's own, preallocated; what sequences share lies in
shared_prefixes.py.

A row's slots go on where what it shares ends: its first own token lies in slot 0.

Shapes: L = layers, R = rows (capacity), K = key-value heads, S = slots, D = head size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from shared.inference.prefix_kv import KvLayout
from shared.inference.prefix_tree import Segment

_SLOT_STEP = 64
"""Slots are allocated in multiples of this beyond what the prompts need, and doubled when they run out."""


class RowCache:
    """Rows 0..n-1 belong to the n running sequences; the batch says how many of their slots are filled."""

    def __init__(self, layout: KvLayout, dtype: torch.dtype, device: torch.device) -> None:
        self._layout = layout
        self._dtype, self._device = dtype, device
        self.keys = self._allocate(0, 0)
        """`[L, R, K, S, D]`"""
        self.values = self._allocate(0, 0)

    def reserve(self, num_rows: int, num_slots: int, max_slots: int) -> None:
        """Makes room for `num_rows` rows of `num_slots` slots, keeping what is stored.

        Slots grow by doubling up to `max_slots`, what the longest running sequence can ever need. Nothing
        shrinks: the next batch finds its memory.
        """
        _, rows, _, slots, _ = self.keys.shape
        if num_rows <= rows and num_slots <= slots:
            return
        old_keys, old_values = self.keys, self.values
        if num_slots > slots:
            slots = max(num_slots, min(max(num_slots + _SLOT_STEP, 2 * slots), max_slots))
        self.keys, self.values = (self._allocate(max(num_rows, rows), slots) for _ in range(2))
        self.keys[:, :rows, :, : old_keys.shape[3]] = old_keys
        self.values[:, :rows, :, : old_values.shape[3]] = old_values

    def write(self, rows: Sequence[int], segment: Segment, start: int = 0) -> None:
        """Stores a segment's keys and values in slots `start`, `start + 1`, ... of each row."""
        keys, values = segment.kv
        slots = slice(start, start + keys.shape[2])
        for row in rows:
            self.keys[:, row, :, slots] = keys
            self.values[:, row, :, slots] = values

    def row(self, row: int, num_slots: int) -> tuple[Tensor, Tensor]:
        """Keys and values in the first slots of a row, `[L, K, num_slots, D]` each, as views."""
        return self.keys[:, row, :, :num_slots], self.values[:, row, :, :num_slots]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copies rows `sources` over rows `targets`."""
        if not len(sources):
            return
        for tensor in (self.keys, self.values):
            tensor[:, targets] = tensor[:, sources]

    def _allocate(self, num_rows: int, num_slots: int) -> Tensor:
        # Zeros, because a slot that is masked out still meets a product: 0 * garbage may be NaN.
        layout = self._layout
        shape = (layout.num_layers, num_rows, layout.num_kv_heads, num_slots, layout.head_dim)
        return torch.zeros(shape, dtype=self._dtype, device=self._device)
