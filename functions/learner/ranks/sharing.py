"""Who computes what: the micro-batches of an update go to the ranks in rounds, one each. Pure.

A rank for which a round has none computes one all the same, with an empty loss mask: the others wait for its part in
every exchange of weights and gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.training.batching import MicroBatch, MiniBatch, num_tokens, pack_micro_batches
from shared.training.rows import SequenceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A rank's part of one round."""

    indices: MicroBatch
    """Row numbers."""
    counts: bool
    """False where the rank only keeps up with the others."""


def share_of(micro_batches: Sequence[MicroBatch], rank: int) -> Share:
    """The part of a round of at most one micro-batch per rank."""
    if rank < len(micro_batches):
        return Share(indices=micro_batches[rank], counts=True)
    return Share(indices=micro_batches[0][:1], counts=False)


def spread_out(
    rows: Sequence[SequenceRow], mini_batch: MiniBatch, max_tokens: int, num_ranks: int, *, share_prompts: bool
) -> MiniBatch:
    """A mini-batch cut finer, until every rank has a micro-batch or every row is one of its own."""
    indices = sorted(index for micro_batch in mini_batch for index in micro_batch)
    while len(mini_batch) < min(num_ranks, len(indices)):
        max_tokens = max(1, min(max_tokens, num_tokens(rows, indices)) // 2)
        mini_batch = pack_micro_batches(rows, indices, max_tokens, share_prompts=share_prompts)
    return mini_batch
