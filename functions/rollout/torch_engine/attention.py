"""Attention of one new token per row: over what rows share, once for all of them, and over each row's own tokens.

Softmax over a sequence cut into parts is the parts' softmaxes weighted by their normalisers. With o_i the output over
part i alone and l_i = log Σ exp(score) over it, the output over parts 1 and 2 is o_1 + σ(l_2 − l_1)·(o_2 − o_1), and
its normaliser log(e^l_1 + e^l_2): exact, so that nothing is expanded or approximated.

Shapes: B = running rows, H = query heads, K = key-value heads, G = H / K, D = head size, S = slots or tokens in use,
N = shared segments of a slab, R = the most rows that one of them has. A line is one row's query head: `b * H + h`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

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
        self._unseen: dict[int | None, Tensor | None] = {}
        self._unseen_in_parts: dict[tuple[int, int], Tensor] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        num_rows, _, head_dim = queries.shape
        scaled = (queries * scale).view(-1, head_dim)
        mine, my_values = self._store(layer, keys, values)
        scores = torch.bmm(scaled.view(len(mine), -1, head_dim), mine.transpose(1, 2))
        unseen = self._unseen_slots(window)
        if unseen is not None:
            scores.view(num_rows, -1, self._num_slots).masked_fill_(unseen, -torch.inf)
        if not self._parts:
            weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
            return torch.bmm(weights, my_values).view(num_rows, -1)
        output, normaliser = _softmax_part(scores, my_values)
        for index, part in enumerate(self._parts):
            unseen = self._unseen_in_part(index, window)
            other, its_normaliser = part.attend(layer, scaled, unseen)
            output = output.lerp(other, (its_normaliser - normaliser).sigmoid())
            if index + 1 < len(self._parts):
                normaliser = torch.logaddexp(normaliser, its_normaliser)
        return output.to(values.dtype).view(num_rows, -1)

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """See `Attention`."""
        self._store(layer, keys, values)

    def _store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes one slot per row and returns the slots in use of all rows, `[B * K, S, D]` each."""
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
            in_use.append(cached[:num_rows, :, : self._num_slots].flatten(0, 1))
        return in_use[0], in_use[1]

    def _unseen_slots(self, window: int | None) -> Tensor | None:
        """True where a row's token must not look among its own slots, `[B, 1, S]`; None when all see everything."""
        if window not in self._unseen:
            self._unseen[window] = self._find_unseen_slots(window)
        return self._unseen[window]

    def _find_unseen_slots(self, window: int | None) -> Tensor | None:
        inside = window is None or window >= self._num_slots
        if self._uniform and inside:
            return None
        slots = torch.arange(self._num_slots, device=self._own_slots.device)
        newest = self._own_slots[:, None, None]
        unseen = slots > newest
        return unseen if window is None or inside else unseen | (slots <= newest - window)

    def _unseen_in_part(self, index: int, window: int | None) -> Tensor | None:
        """True where a row's token must not look because of its window, `[N, 1, R, 1, S]`."""
        if window is None:
            return None
        if (index, window) not in self._unseen_in_parts:
            self._unseen_in_parts[index, window] = self._parts[index].outside(self._positions, window)
        return self._unseen_in_parts[index, window]


class SharedPart:
    """The segments of one slab, and which rows go through each. It holds until rows or segments change."""

    def __init__(self, slab: Slab, rows: Sequence[Sequence[int]], num_rows: int, num_heads: int) -> None:
        """`rows` of each of the N segments; `num_rows` is B, `num_heads` is H."""
        _, _, num_kv_heads, _, _ = slab.keys.shape
        device = slab.keys.device
        lengths = [len(segment.token_ids) for segment in slab.segments]
        self._num_tokens = max(lengths)
        in_use = (tensor[:, : len(rows), :, : self._num_tokens].flatten(1, 2) for tensor in (slab.keys, slab.values))
        # `[N * K, S, D]` of each layer.
        self._keys, self._values = (list(tensor) for tensor in in_use)
        self._starts = torch.tensor([segment.start for segment in slab.segments], device=device)
        tokens = torch.arange(self._num_tokens, device=device)
        self._padding: Tensor | None = None
        if min(lengths) < self._num_tokens:
            self._padding = (tokens >= torch.tensor(lengths, device=device)[:, None])[:, None]
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
        group = heads.shape[-1]
        per_head = np.arange(num_kv_heads)[:, None] * most * group + np.arange(group)
        places = np.maximum(place, 0)[:, None, None] * group + per_head
        self._places = torch.from_numpy(places.reshape(-1)).to(device)
        """`[B * H]`: where each line's output is in the product."""
        absent = np.repeat(place < 0, num_heads)
        self._absent = torch.from_numpy(absent[:, None]).to(device) if absent.any() else None
        """`[B * H, 1]`: lines of rows that go through none of the segments."""

    def attend(self, layer: int, lines: Tensor, unseen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Output `[B * H, D]` and normaliser `[B * H, 1]` of scaled queries `lines` `[B * H, D]` over their segments,
        in float32; −inf where there is none."""
        keys, values = self._keys[layer], self._values[layer]
        queries = lines.index_select(0, self._lines).view(len(keys), -1, lines.shape[1])
        scores = torch.bmm(queries, keys.transpose(1, 2))
        if self._padding is not None:
            scores.view(len(self._padding), -1, self._num_tokens).masked_fill_(self._padding, -torch.inf)
        if unseen is not None:
            num_segments, _, most, _, num_tokens = unseen.shape
            num_kv_heads = len(keys) // num_segments
            scores.view(num_segments, num_kv_heads, most, -1, num_tokens).masked_fill_(unseen, -torch.inf)
        output, normaliser = _softmax_part(scores, values, sees_something=unseen is None)
        output, normaliser = output.index_select(0, self._places), normaliser.index_select(0, self._places)
        if self._absent is not None:
            normaliser = normaliser.masked_fill(self._absent, -torch.inf)
        return output, normaliser

    def outside(self, positions: Tensor, window: int) -> Tensor:
        """Which tokens are too far behind rows at `positions` `[B]`, `[N, 1, R, 1, S]`."""
        tokens = self._starts[:, None] + torch.arange(self._num_tokens, device=positions.device)
        return (tokens[:, None] <= positions[self._rows][..., None] - window)[:, None, :, None]


def _softmax_part(scores: Tensor, values: Tensor, *, sees_something: bool = True) -> tuple[Tensor, Tensor]:
    """Output `[lines, D]` and normaliser `[lines, 1]` over `scores` `[X, Y, S]` and `values` `[X, S, D]`, in float32.

    Where every score is −inf, which only `sees_something=False` allows, the output is 0 and the normaliser −inf.
    """
    weights = scores.softmax(-1, dtype=torch.float32)
    if sees_something:
        # The largest weight is e^(largest score − normaliser): two maxima are cheaper than another sum of exponentials.
        normaliser = scores.amax(-1).float() - weights.amax(-1).log()
    else:
        normaliser = scores.float().logsumexp(-1)
        weights = weights.nan_to_num(0.0)
    output = torch.bmm(weights.to(values.dtype), values)
    return output.view(-1, values.shape[-1]).float(), normaliser.view(-1, 1)
