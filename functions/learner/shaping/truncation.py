"""Overlong filtering: completions that were cut are out of the loss.

DAPO (arXiv 2503.14476), section 3.4, and TRL's `mask_truncated_completions`: what a cut completion would have come to
is unknown, so its tokens teach nothing. As in TRL it stays in its group's mean and spread, where leaving it out would
make the others of the group look worse than they are. It counts in no denominator of the loss, and in no batch's
whitening; its tokens still have returns, for a critic.
"""

from collections.abc import Sequence

from functions.learner.credit_config import CreditConfig
from functions.learner.rows import TrainRow


def rows_out_of_loss(rows: Sequence[TrainRow], config: CreditConfig) -> frozenset[int]:
    """Indices of the rows that have no place in the loss."""
    if not config.mask_truncated:
        return frozenset()
    return frozenset(index for index, row in enumerate(rows) if row.is_truncated)
