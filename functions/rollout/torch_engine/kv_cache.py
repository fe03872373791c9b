"""Keys and values of all running sequences, preallocated; a token at position p of its sequence lies in slot p.

Shapes: layers list of `[R, K, S, D]`; R = rows (capacity), K = key-value heads, S = slots, D = head size.
"""

import torch
from torch import Tensor

_SLOT_STEP = 64
"""Slots are allocated in multiples of this beyond what the prompts need, and doubled when they run out."""


class KVCache:
    """Rows 0..n-1 belong to the n running sequences; the batch says where each one stands."""

    def __init__(
        self, num_layers: int, num_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._row_shape = (num_heads, head_dim)
        self._options = {"dtype": dtype, "device": device}
        self.keys = [self._allocate(0, 0) for _ in range(num_layers)]
        self.values = [self._allocate(0, 0) for _ in range(num_layers)]

    @property
    def num_slots(self) -> int:
        """S."""
        return self.keys[0].shape[2]

    def reserve(self, num_rows: int, num_slots: int, max_slots: int) -> None:
        """Makes room for `num_rows` rows of `num_slots` slots, keeping what is stored.

        Slots grow by doubling up to `max_slots`, what the longest running sequence can ever need. Nothing
        shrinks: the next batch finds its memory.
        """
        rows, _, slots, _ = self.keys[0].shape
        if num_rows <= rows and num_slots <= slots:
            return
        if num_slots > slots:
            slots = max(num_slots, min(max(num_slots + _SLOT_STEP, 2 * slots), max_slots))
        rows = max(num_rows, rows)
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self._allocate(rows, slots)
                tensors[layer][: old.shape[0], :, : old.shape[2]] = old

    def write_prefixes(self, layer: int, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores the first tokens of `rows` `[M]`; keys and values are `[M, K, P, D]`."""
        num_slots = keys.shape[2]
        self.keys[layer][rows, :, :num_slots] = keys
        self.values[layer][rows, :, :num_slots] = values

    def write_tokens(self, layer: int, rows: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores single tokens: the i-th in slot `slots[i]` of row `rows[i]`; keys and values are `[M, K, D]`."""
        self.keys[layer][rows, :, slots] = keys
        self.values[layer][rows, :, slots] = values

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copies rows `sources` over rows `targets`."""
        for tensor in (*self.keys, *self.values):
            tensor[targets] = tensor[sources]

    def _allocate(self, num_rows: int, num_slots: int) -> Tensor:
        # Zeros, because a slot that is masked out still meets a product: 0 * garbage may be NaN.
        num_heads, head_dim = self._row_shape
        return torch.zeros(num_rows, num_heads, num_slots, head_dim, **self._options)
