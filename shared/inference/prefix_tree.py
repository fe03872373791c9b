"""Where several prefixes begin alike: a tree of the segments that they are made of.

A beginning that prompts share (a system prompt, examples) is a segment above theirs; the prompt that a group shares
is one segment with all its samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from shared.inference.distinct_prefixes import common_length
from shared.inference.prefix_kv import KvLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """When a common beginning of different prefixes is a segment of its own."""

    min_tokens: int = 32
    """Shorter ones cost more in another pass, and in another part of every attention, than they save."""
    block_tokens: int = 16
    """Common beginnings end at multiples of this, counted from where they start."""

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot be."""
        if self.block_tokens < 1 or self.min_tokens < 1 or self.min_tokens % self.block_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} must be a multiple of block_tokens {self.block_tokens}")


@dataclass(slots=True, kw_only=True, eq=False)
class Segment:
    """Tokens that follow the same beginning in one or more sequences."""

    parent: "Segment | None"
    token_ids: tuple[int, ...]
    """At least one."""
    start: int
    """The position of its first token."""
    users: tuple[int, ...] = ()
    """Indices of the prefixes that go through it, as they were given."""
    keys: Tensor | None = None
    """`[L, K, T, D]`: layers, key-value heads, tokens of this segment, head size. None until they are computed."""
    values: Tensor | None = None
    """As `keys`."""

    @property
    def end(self) -> int:
        """One after the position of its last token."""
        return self.start + len(self.token_ids)

    @property
    def kv(self) -> tuple[Tensor, Tensor]:
        """Keys and values, which must have been computed."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def chain(self) -> "list[Segment]":
        """From the first segment of its sequence to this one."""
        above = self.parent.chain() if self.parent else []
        return [*above, self]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreePrefix:
    """A ``ComputedPrefix`` in the segments that it is made of, so that prefixes hold what they share once."""

    token_ids: tuple[int, ...]
    """[P]"""
    layout: KvLayout
    last: Segment | None
    """Where it ends; None for a prefix of no tokens."""

    def between(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """See ``ComputedPrefix``; copied only where several segments meet."""
        keys, values = [], []
        for segment in self.last.chain() if self.last else ():
            if segment.start < end and segment.end > start:
                of_segment = slice(max(start, segment.start) - segment.start, min(end, segment.end) - segment.start)
                segment_keys, segment_values = segment.kv
                keys.append(segment_keys[:, :, of_segment])
                values.append(segment_values[:, :, of_segment])
        return _joined(keys), _joined(values)


def grow(
    prefixes: Sequence[tuple[int, ...]], sharing: Sharing, parent: Segment | None = None
) -> tuple[list[Segment], list[Segment | None]]:
    """The segments of prefixes that all go through `parent`, every one after its own parent, and the last segment of
    each prefix: `parent` where nothing follows it.

    Equal prefixes end in the same segment, whatever `sharing` asks for.
    """
    users: dict[tuple[int, ...], list[int]] = {}
    for index, prefix in enumerate(prefixes):
        users.setdefault(prefix, []).append(index)
    last: list[Segment | None] = [parent] * len(prefixes)
    segments = []
    for segment, ended in _split(sorted(users), users, parent, sharing):
        segments.append(segment)
        for index in ended:
            last[index] = segment
    return segments, last


def _split(
    prefixes: list[tuple[int, ...]], users: dict[tuple[int, ...], list[int]], parent: Segment | None, sharing: Sharing
) -> Iterator[tuple[Segment, list[int]]]:
    """Segments below `parent` of sorted, distinct prefixes, and the users that end in each."""
    start = parent.end if parent else 0
    going_on = [prefix for prefix in prefixes if len(prefix) > start]
    for _, alike in groupby(going_on, key=lambda prefix: prefix[start : start + sharing.min_tokens]):
        # Sorted, so that what the first and the last have in common is common to all.
        group = list(alike)
        end = common_length(group[0], group[-1])
        if len(group) > 1:
            end -= (end - start) % sharing.block_tokens
        segment = Segment(
            parent=parent,
            token_ids=group[0][start:end],
            start=start,
            users=tuple(user for prefix in group for user in users[prefix]),
        )
        yield segment, [user for prefix in group if len(prefix) == end for user in users[prefix]]
        yield from _split(group, users, segment, sharing)


def _joined(parts: list[Tensor]) -> Tensor:
    """Parts `[L, K, T_i, D]` one after another, without a copy where there is but one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
