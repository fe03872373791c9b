"""What the ranks of a replica tell each other during an update, and the group of one that most replicas are."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """The ranks as one of them sees them. All ranks call the same methods in the same order."""

    rank: int
    """0 is the process that serves HTTP."""
    size: int

    def total(self, values: Tensor) -> Tensor:
        """The sum over the ranks, by element."""
        ...

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest over the ranks, by element."""
        ...

    def agreed(self, decision: bool) -> bool:
        """Rank 0's decision."""
        ...


class OneRank:
    """Nobody to talk to."""

    rank = 0
    size = 1

    def total(self, values: Tensor) -> Tensor:
        """The values."""
        return values

    def largest(self, values: Sequence[float]) -> list[float]:
        """The values."""
        return list(values)

    def agreed(self, decision: bool) -> bool:
        """The decision."""
        return decision


ONE_RANK = OneRank()
