"""Which segments of tokens an attention kernel takes at once: ragged ones cost padding, many calls cost time. Pure.

A segment is a run of tokens that attends to itself and to a prefix that others may share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

TOLERATED_WASTE = 0.25
"""Padding that a segment may add to a block, as a share of its own cost."""
CALL_COST = 1 << 14
"""What one more call of the kernel costs, in pairs of a query and a key."""


@dataclass(slots=True)
class _Block:
    segments: list[int] = field(default_factory=list)
    prefix: int = 0
    length: int = 0

    def cost_with(self, prefix: int, length: int) -> int:
        """Pairs of queries and keys, padding included, with one segment more."""
        longest_prefix, longest = max(self.prefix, prefix), max(self.length, length)
        return (len(self.segments) + 1) * longest * (longest_prefix + longest)

    @property
    def cost(self) -> int:
        return len(self.segments) * self.length * (self.prefix + self.length)

    def add(self, segment: int, prefix: int, length: int) -> None:
        self.segments.append(segment)
        self.prefix, self.length = max(self.prefix, prefix), max(self.length, length)


def similar_segments(prefixes: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of the segments in each block, given how long each segment and the prefix that it sees are.

    Segments, the longest first, go where they add the least; where that is more than their own cost and what is
    tolerated, they begin a block. Empty segments are in none.
    """
    blocks: list[_Block] = []
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], -prefixes[number], number))
    for number in order:
        prefix, length = prefixes[number], lengths[number]
        if not length:
            continue
        nearest = min(blocks, key=lambda block: block.cost_with(prefix, length) - block.cost, default=None)
        alone = length * (prefix + length)
        tolerated = (1.0 + TOLERATED_WASTE) * alone + CALL_COST
        if nearest is None or nearest.cost_with(prefix, length) - nearest.cost > tolerated:
            blocks.append(nearest := _Block())
        nearest.add(number, prefix, length)
    return [sorted(block.segments) for block in blocks]
