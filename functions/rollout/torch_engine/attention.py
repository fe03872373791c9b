"""Attention of one new token per row: over what rows share, once for all of them, and over each row's own tokens.

What is shared is never expanded: of a segment, the queries of all its rows are one matrix.

Shapes: B = running rows, H = query heads, K = key-value heads, G = H / K, D = head size, S = slots or tokens in use,
N = shared segments of a slab, R = the most rows that one of them has. A line is one row's query head: `b * H + h`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from functions.rollout.torch_engine.attention_part import Hidden, attend_part, attend_whole, merge
from functions.rollout.torch_engine.row_cache import RowCache
from functions.rollout.torch_engine.shared_prefixes import Slab


class DecodeAttention:
    """One new token for each of the rows 0..B-1. It lies in the row's slot `slots` `[B]`, all of which are in
    `shortest..longest`, and at `positions` `[B]` in its sequence."""

    def __init__(
        self,
        cache: RowCache,
        positions: Tensor,
        slots: Tensor,
        shortest: int,
        longest: int,
        parts: "Sequence[SharedPart]",
    ) -> None:
        self._cache = cache
        self._positions = positions
        self._own_slots = slots
        self._num_slots = longest + 1
        self._uniform = shortest == longest
        self._parts = parts
        self._stored: Tensor | None = None
        self._hidden: dict[int | None, Hidden | None] = {}
        self._hidden_in_parts: dict[tuple[int, int], Hidden] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        num_rows, _, head_dim = queries.shape
        mine, my_values = self._store(layer, keys, values)
        lines = (queries * scale).reshape(-1, head_dim)
        grouped = lines.view(num_rows, keys.shape[1], -1, head_dim)
        if window not in self._hidden:
            self._hidden[window] = self._find_hidden(window)
        hidden = self._hidden[window]
        if not self._parts:
            return attend_whole(grouped, mine, my_values, hidden).view(num_rows, -1)
        output, normaliser = attend_part(grouped, mine, my_values, hidden)
        output, normaliser = output.view(-1, head_dim).float(), normaliser.view(-1, 1)
        for index, part in enumerate(self._parts):
            other, its_normaliser = part.attend(layer, lines, self._hidden_in_part(index, window))
            output = merge(output, normaliser, other, its_normaliser)
            if index + 1 < len(self._parts):
                normaliser = torch.logaddexp(normaliser, its_normaliser)
        return output.view(num_rows, -1).to(values.dtype)

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """See `Attention`."""
        self._store(layer, keys, values)

    def _store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes one slot per row and returns the slots in use of all rows, `[B, K, S, D]` each."""
        num_rows, num_heads, head_dim = keys.shape
        if self._stored is None and not self._uniform:
            slots_per_row = self._cache.keys.shape[3]
            lines = torch.arange(num_rows * num_heads, device=keys.device).view(-1, num_heads)
            self._stored = (lines * slots_per_row + self._own_slots[:, None]).flatten()
        in_use = []
        for cached, new in ((self._cache.keys[layer], keys), (self._cache.values[layer], values)):
            if self._stored is None:
                cached[:num_rows, :, self._num_slots - 1] = new
            else:
                cached.view(-1, head_dim).index_copy_(0, self._stored, new.reshape(-1, head_dim))
            in_use.append(cached[:num_rows, :, : self._num_slots])
        return in_use[0], in_use[1]

    def _find_hidden(self, window: int | None) -> Hidden | None:
        """Where a row's token must not look among its own slots; None when all see everything."""
        inside = window is None or window >= self._num_slots
        if self._uniform and inside:
            return None
        slots = torch.arange(self._num_slots, device=self._own_slots.device)
        newest = self._own_slots[:, None, None, None]
        hidden = slots > newest
        if window is not None and not inside:
            hidden |= slots <= newest - window
        return Hidden.where(hidden)

    def _hidden_in_part(self, index: int, window: int | None) -> Hidden | None:
        """Where a row's token must not look in what it shares."""
        part = self._parts[index]
        if window is None:
            return part.padding
        if (index, window) not in self._hidden_in_parts:
            self._hidden_in_parts[index, window] = part.outside(self._positions, window)
        return self._hidden_in_parts[index, window]


class SharedPart:
    """The segments of one slab, and which rows go through each. It holds until rows or segments change."""

    def __init__(self, slab: Slab, rows: Sequence[Sequence[int]], num_rows: int, num_heads: int) -> None:
        """`rows` of each of the N segments; `num_rows` is B, `num_heads` is H."""
        _, _, num_kv_heads, _, _ = slab.keys.shape
        device = slab.keys.device
        lengths = [len(segment.token_ids) for segment in slab.segments]
        self._num_tokens = max(lengths)
        in_use = (tensor[:, : len(rows), :, : self._num_tokens] for tensor in (slab.keys, slab.values))
        # `[N, K, S, D]` of each layer.
        self._keys, self._values = (list(tensor) for tensor in in_use)
        self._starts = torch.tensor([segment.start for segment in slab.segments], device=device)
        tokens = torch.arange(self._num_tokens, device=device)
        self._beyond = (tokens >= torch.tensor(lengths, device=device)[:, None])[:, None, None]
        self.padding = Hidden.where(self._beyond) if min(lengths) < self._num_tokens else None
        """What lies beyond the end of a shorter segment."""
        most = max(len(some) for some in rows)
        by_segment = np.zeros((len(rows), most), dtype=np.int64)
        place = np.full(num_rows, -1, dtype=np.int64)
        for segment, some in enumerate(rows):
            by_segment[segment, : len(some)] = some
            place[list(some)] = segment * num_kv_heads * most + np.arange(len(some))
        heads = np.arange(num_heads).reshape(num_kv_heads, 1, -1)
        lines = by_segment[:, None, :, None] * num_heads + heads
        self._rows = torch.from_numpy(by_segment).to(device)
        self._lines = torch.from_numpy(lines.reshape(-1)).to(device)
        """`[N * K * R * G]`: what each query of the batched product is; padding repeats row 0."""
        self._group = group = heads.shape[-1]
        per_head = np.arange(num_kv_heads)[:, None] * most * group + np.arange(group)
        places = np.maximum(place, 0)[:, None, None] * group + per_head
        self._places = torch.from_numpy(places.reshape(-1)).to(device)
        """`[B * H]`: where each line's output is in the product."""
        absent = np.repeat(place < 0, num_heads)
        self._absent = torch.from_numpy(absent[:, None]).to(device) if absent.any() else None
        """`[B * H, 1]`: lines of rows that go through none of the segments."""

    def attend(self, layer: int, lines: Tensor, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
        """Output `[B * H, D]` and normaliser `[B * H, 1]` of scaled queries `lines` `[B * H, D]` over their
        segments, in float32; −inf where there is none."""
        keys, values = self._keys[layer], self._values[layer]
        queries = lines.index_select(0, self._lines).view(*keys.shape[:2], -1, lines.shape[1])
        output, normaliser = attend_part(queries, keys, values, hidden)
        output = output.reshape(-1, lines.shape[1]).index_select(0, self._places).float()
        normaliser = normaliser.reshape(-1, 1).index_select(0, self._places)
        if self._absent is not None:
            normaliser = normaliser.masked_fill(self._absent, -torch.inf)
        return output, normaliser

    def outside(self, positions: Tensor, window: int) -> Hidden:
        """What is too far behind rows at `positions` `[B]`, and what is hidden anyway."""
        tokens = self._starts[:, None] + torch.arange(self._num_tokens, device=positions.device)
        newest = positions[self._rows].repeat_interleave(self._group, dim=1)
        hidden = (tokens[:, None] <= newest[..., None] - window)[:, None] | self._beyond
        return Hidden.where(hidden, maybe_everything=True)
