"""Keys and values of a prefix, and what makes those of two computations exchangeable.

Shapes: L = layers, K = key-value heads, P = tokens of the prefix, D = head size.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """The shape of one token's keys and values. Of one policy and one layout, any engine's fit any other's."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    """As torch spells it: "float32", "bfloat16"."""

    @property
    def bytes_per_token(self) -> int:
        """Of keys and values in all layers together."""
        size = getattr(torch, self.dtype).itemsize
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * int(size)

    @property
    def name(self) -> str:
        """Short and stable; it goes into the keys under which prefixes are stored."""
        return f"l{self.num_layers}-k{self.num_kv_heads}-d{self.head_dim}-{self.dtype}"


class ComputedPrefix(Protocol):
    """Keys and values of the first P tokens of a sequence, wherever they lie."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """[P]"""
        ...

    @property
    def layout(self) -> KvLayout:
        """Of its tensors."""
        ...

    def between(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the tokens ``start`` to ``end``, at least one, `[L, K, end - start, D]` each; not to be
        written to."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefixKv:
    """A ``ComputedPrefix`` in two tensors, at positions 0..P-1; keys are rotated already."""

    token_ids: tuple[int, ...]
    """[P]"""
    keys: Tensor
    """[L, K, P, D], in the model's dtype."""
    values: Tensor
    """As `keys`."""

    @property
    def layout(self) -> KvLayout:
        """Of these tensors."""
        num_layers, num_kv_heads, _, head_dim = self.keys.shape
        dtype = str(self.keys.dtype).removeprefix("torch.")
        return KvLayout(num_layers=num_layers, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype)

    def between(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """See ``ComputedPrefix``."""
        return self.keys[:, :, start:end], self.values[:, :, start:end]
