"""Attention of new tokens over the cache. Three kinds of pass: whole prefixes, some tokens more for some rows, or one
token for every row.

Both forward passes (llama.py, generic.py) call `attend` once per layer.

Shapes: N = prefixes, P = their padded length, B = running rows, T = new tokens (N * P or B), H = query heads,
K = key-value heads, G = H / K, D = head size, L = slots in use.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from functions.rollout.torch_engine.kv_cache import KVCache


class PrefillAttention:
    """Causal attention within N prefixes padded on the right to P tokens; prefix `sources[i]` fills row `rows[i]`.

    Padding comes after all real tokens, so no real token sees it, and what it leaves in the cache is overwritten
    before the row's position reaches it.
    """

    def __init__(self, cache: KVCache, rows: Tensor, sources: Tensor, num_prefixes: int) -> None:
        self._cache = cache
        self._rows = rows
        self._sources = sources
        self._num_prefixes = num_prefixes

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        queries, keys, values = (
            tensor.unflatten(0, (self._num_prefixes, -1)).transpose(1, 2) for tensor in (queries, keys, values)
        )
        self._cache.write_prefixes(layer, self._rows, keys[self._sources], values[self._sources])
        length = queries.shape[2]
        mask = None if window is None or window >= length else _band(length, window, queries.device)
        output = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
        )
        return output.transpose(1, 2).reshape(-1, output.shape[1] * output.shape[3])

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """See `Attention`."""
        keys, values = (t.unflatten(0, (self._num_prefixes, -1)).transpose(1, 2) for t in (keys, values))
        self._cache.write_prefixes(layer, self._rows, keys[self._sources], values[self._sources])


class ExtendAttention:
    """Some more tokens for N running rows, padded on the right to P tokens, after the slots that are filled.

    `positions` `[N, P]` are the slots of the tokens; the first `lengths` `[N]` of a row are real. Padding repeats the
    position of the row's last real token and is not stored.
    """

    def __init__(self, cache: KVCache, rows: Tensor, positions: Tensor, lengths: Tensor) -> None:
        self._cache = cache
        self._rows = rows
        self._positions = positions
        self._is_real = torch.arange(positions.shape[1], device=positions.device) < lengths[:, None]
        self._stored_rows = rows[:, None].expand_as(positions)[self._is_real]
        self._stored_slots = positions[self._is_real]
        self._num_slots = int(positions.max()) + 1

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        real = self._is_real.flatten()
        self._cache.write_tokens(layer, self._stored_rows, self._stored_slots, keys[real], values[real])
        slots = torch.arange(self._num_slots, device=queries.device)
        positions = self._positions[:, None, :, None]
        visible = slots <= positions
        if window is not None:
            visible &= slots > positions - window
        output = F.scaled_dot_product_attention(
            queries.unflatten(0, self._positions.shape).transpose(1, 2),
            self._cache.keys[layer][self._rows, :, : self._num_slots],
            self._cache.values[layer][self._rows, :, : self._num_slots],
            attn_mask=visible,
            scale=scale,
            enable_gqa=True,
        )
        return output.transpose(1, 2).reshape(-1, output.shape[1] * output.shape[3])

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """See `Attention`."""
        real = self._is_real.flatten()
        self._cache.write_tokens(layer, self._stored_rows, self._stored_slots, keys[real], values[real])


class DecodeAttention:
    """One new token for each of the rows 0..B-1, at `positions` `[B]`, which lie in shortest..longest.

    Written as two batched products: with one query per row they beat scaled_dot_product_attention on a CPU.
    """

    def __init__(self, cache: KVCache, positions: Tensor, shortest: int, longest: int) -> None:
        self._cache = cache
        self._num_rows = positions.shape[0]
        self._positions = positions
        self._num_slots = longest + 1
        self._uniform = shortest == longest
        self._slots: Tensor | None = None
        self._unseen: dict[int | None, Tensor | None] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        num_rows, num_heads, head_dim = keys.shape
        all_keys = self._store(self._cache.keys[layer], keys)
        all_values = self._store(self._cache.values[layer], values)
        grouped = (queries * scale).reshape(num_rows * num_heads, -1, head_dim)
        scores = torch.bmm(grouped, all_keys.transpose(1, 2))
        unseen = self._unseen_slots(window)
        if unseen is not None:
            scores.view(num_rows, -1, self._num_slots).masked_fill_(unseen, -torch.inf)
        weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
        return torch.bmm(weights, all_values).view(num_rows, -1)

    def _store(self, cached: Tensor, new: Tensor) -> Tensor:
        """Writes one slot per row and returns the slots in use of all rows, `[B * K, L, D]`."""
        num_heads, slots_per_row, head_dim = cached.shape[1:]
        if self._slots is None:
            lines = torch.arange(self._num_rows * num_heads, device=new.device).view(-1, num_heads)
            self._slots = (lines * slots_per_row + self._positions[:, None]).flatten()
        cached.view(-1, head_dim).index_copy_(0, self._slots, new.reshape(-1, head_dim))
        return cached[: self._num_rows].flatten(0, 1)[:, : self._num_slots]

    def _unseen_slots(self, window: int | None) -> Tensor | None:
        """True where a row's token must not look, `[B, 1, L]`; None when all rows see everything."""
        if window not in self._unseen:
            self._unseen[window] = self._find_unseen_slots(window)
        return self._unseen[window]

    def _find_unseen_slots(self, window: int | None) -> Tensor | None:
        inside = window is None or window >= self._num_slots
        if self._uniform and inside:
            return None
        slots = torch.arange(self._num_slots, device=self._positions.device)
        positions = self._positions[:, None, None]
        unseen = slots > positions
        return unseen if inside else unseen | (slots <= positions - window)


def _band(length: int, window: int, device: torch.device) -> Tensor:
    """Causal mask limited to the last `window` tokens, `[P, P]`, True = visible."""
    visible = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return visible.triu(1 - window)
