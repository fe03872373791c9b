"""What a forward pass calls once per layer, and attention of more tokens after what has been computed of a sequence.

Shapes: N = sequences, P = their new tokens, padded on the right, C = tokens before these, T = new tokens of a pass
(N * P here), H = query heads, K = key-value heads, D = head size.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Attention(Protocol):
    """One pass over some new tokens."""

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Stores keys and values `[T, K, D]` of a layer and returns the attention output `[T, H * D]` of
        `queries` `[T, H, D]`. With `window`, a token sees itself and the `window - 1` tokens before it."""
        ...

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Stores keys and values `[T, K, D]` of a layer whose attention output nobody needs."""
        ...


Past = Callable[[int], tuple[Tensor, Tensor]]
"""Layer → keys and values before the new tokens, `[N, K, C, D]` each, padded on the right with finite numbers."""

Store = Callable[[int, Tensor, Tensor], None]
"""Takes a layer's new keys and values, `[N, K, P, D]` each; those of padding mean nothing."""


class ExtendAttention:
    """Causal attention of P new tokens each for N sequences, after `past_lengths` tokens that have been computed.

    Padding comes after all real tokens, so that no real token sees it.
    """

    def __init__(self, past_lengths: Sequence[int], num_new: int, past: Past | None, store: Store) -> None:
        """`past` may be None if nothing has been computed of any sequence."""
        self._past_lengths = past_lengths
        self._num_new = num_new
        self._past = past
        self._store = store
        self._masks: dict[int | None, Tensor | None] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attention`."""
        queries, keys, values = (self._by_sequence(tensor) for tensor in (queries, keys, values))
        self._store(layer, keys, values)
        if self._past is not None:
            past_keys, past_values = self._past(layer)
            keys, values = torch.cat((past_keys, keys), dim=2), torch.cat((past_values, values), dim=2)
        if window not in self._masks:
            self._masks[window] = self._visible(window, queries.device)
        mask = self._masks[window]
        output = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
        )
        return output.transpose(1, 2).reshape(-1, output.shape[1] * output.shape[3])

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """See `Attention`."""
        self._store(layer, self._by_sequence(keys), self._by_sequence(values))

    def _by_sequence(self, tensor: Tensor) -> Tensor:
        """`[N * P, heads, D]` to `[N, heads, P, D]`."""
        return tensor.view(-1, self._num_new, *tensor.shape[1:]).transpose(1, 2)

    def _visible(self, window: int | None, device: torch.device) -> Tensor | None:
        """True where a token looks, `[N or 1, 1, P, C + P]`; None where plain causal attention is the same."""
        lengths = sorted(set(self._past_lengths))
        most_past = lengths[-1]
        if self._past is None and (window is None or window >= self._num_new):
            return None
        # Equal pasts share one mask.
        past_lengths = torch.tensor(self._past_lengths if len(lengths) > 1 else lengths, device=device)[:, None, None]
        new, past = torch.arange(self._num_new, device=device), torch.arange(most_past, device=device)
        positions = past_lengths + new[:, None]
        in_past = (past < past_lengths).expand(-1, self._num_new, -1)
        in_new = (new <= new[:, None]).expand(len(past_lengths), -1, -1)
        if window is not None:
            in_past = in_past & (past > positions - window)
            in_new = in_new & (new > new[:, None] - window)
        return torch.cat((in_past, in_new), dim=-1)[:, None]
