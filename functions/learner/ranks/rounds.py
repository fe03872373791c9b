"""Micro-batch after micro-batch in rounds of one per rank, as far as the budget allows."""

from collections.abc import Iterator, Sequence

from functions.learner.ranks.group import ONE_RANK, Ranks
from functions.learner.ranks.sharing import Share, share_of
from shared.training.batching import MicroBatch, num_tokens
from shared.training.rows import SequenceRow
from shared.training.time_budget import UNLIMITED, Budget, PassKind


class Rounds:
    """Those of one call, as one rank goes through them."""

    def __init__(self, rows: Sequence[SequenceRow], ranks: Ranks = ONE_RANK, budget: Budget = UNLIMITED) -> None:
        self.ranks = ranks
        self.num_passes = 0
        """Micro-batches computed so far, by all ranks."""
        self._rows = rows
        self._budget = budget

    def through(
        self, micro_batches: Sequence[MicroBatch], *, start: int, kind: PassKind
    ) -> Iterator[tuple[Share, int]]:
        """This rank's share of each round, and where the next one begins. Ends early where the budget does."""
        while start < len(micro_batches):
            round_ = micro_batches[start : start + self.ranks.size]
            # The ranks compute at the same time, so the largest counts.
            largest = max(num_tokens(self._rows, indices) for indices in round_)
            if not self.ranks.agreed(self._budget.fits(kind, largest)):
                return
            start += len(round_)
            with self._budget.measure(kind, largest):
                yield share_of(round_, self.ranks.rank), start
            self.num_passes += len(round_)
