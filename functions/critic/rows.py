"""What the critic is fitted to: a completion, the values it had, the returns it got.

Shapes: T completion tokens of one row.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.training.errors import InvalidRows
from shared.training.rows import SequenceRow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueRow(SequenceRow):
    """One completion. Raises InvalidRows when a length does not fit or a trained token has no finite return."""

    old_values: NDArray[np.float32]
    """[T] those that the returns were computed from."""
    returns: NDArray[np.float32]
    """[T]"""

    def __post_init__(self) -> None:
        SequenceRow.__post_init__(self)
        for name in ("old_values", "returns"):
            numbers = getattr(self, name)
            if numbers.shape != self.completion_token_ids.shape:
                raise InvalidRows(f"{self.label} has {name} that do not fit its {self.num_tokens} completion tokens")
            if not np.isfinite(numbers[self.loss_mask]).all():
                raise InvalidRows(f"{self.label} has {name} that are not finite at a trained token")
