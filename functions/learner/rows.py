"""What the learner trains on: one row per completion, with its reward and what the engine said of its tokens.

Shapes: T completion tokens of one row.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.training.errors import InvalidRows
from shared.training.rows import SequenceRow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainRow(SequenceRow):
    """One completion with everything that the update reads of it. Plain sequences become arrays.

    Raises InvalidRows when a length does not fit or a trained token has no finite rollout logprob.
    """

    rollout_logprobs: NDArray[np.float32]
    """[T] under the full softmax at the sampling temperature; anything at all where `loss_mask` is False."""
    reward: float | None
    """None where it could not be computed, which is not 0."""
    finish_reason: str
    """`stop` or `length`; only the latter means truncated."""

    def __post_init__(self) -> None:
        SequenceRow.__post_init__(self)
        object.__setattr__(self, "rollout_logprobs", np.asarray(self.rollout_logprobs, dtype=np.float32))
        if self.rollout_logprobs.shape != self.completion_token_ids.shape:
            raise InvalidRows(
                f"{self.label} has rollout_logprobs that do not fit its {self.num_tokens} completion tokens"
            )
        if not np.isfinite(self.rollout_logprobs[self.loss_mask]).all():
            raise InvalidRows(f"{self.label} has a trained token whose rollout logprob is not finite")
