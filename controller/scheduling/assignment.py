"""Which actor samples which prompts: contiguous runs of equal count, in the order of the batch.

With no knowledge of lengths this is as good as any cut, and it keeps a group together, so that its prompt is
prefilled once.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def assign_in_order(items: Sequence[T], num_actors: int) -> tuple[tuple[T, ...], ...]:
    """Cut ``items`` into ``num_actors`` contiguous parts whose sizes differ by at most one."""
    size, extra = divmod(len(items), num_actors)
    parts, start = [], 0
    for actor in range(num_actors):
        end = start + size + (actor < extra)
        parts.append(tuple(items[start:end]))
        start = end
    return tuple(parts)
