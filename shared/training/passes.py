"""One pass over a model after another, as far as a call's time budget goes."""

from collections.abc import Iterator, Sequence

from shared.training.batching import MicroBatch, num_tokens
from shared.training.rows import SequenceRow
from shared.training.time_budget import Budget, PassKind


def within_budget(
    rows: Sequence[SequenceRow], micro_batches: Sequence[MicroBatch], budget: Budget, kind: PassKind
) -> Iterator[MicroBatch]:
    """Each micro-batch, to be computed before the next one is asked for. Ends early where the budget does."""
    for indices in micro_batches:
        size = num_tokens(rows, indices)
        if not budget.fits(kind, size):
            return
        with budget.measure(kind, size):
            yield indices
