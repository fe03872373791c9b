"""What the learner trains on: one row per completion, with its reward and what is known of its tokens.

Shapes: T completion tokens of one row.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.training.errors import InvalidRows
from shared.training.rows import SequenceRow

_OPTIONAL = ("reference_logprobs", "values", "advantages", "old_logprobs")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainRow(SequenceRow):
    """One completion with everything that the update reads of it. Plain sequences become arrays.

    Logprobs are those of the full softmax at the sampling temperature, whoever computed them. Per-token numbers may be
    anything at all where `loss_mask` is False. Raises InvalidRows when a length does not fit, or where one of them is
    not finite at a trained token.
    """

    rollout_logprobs: NDArray[np.float32]
    """[T] by the engine that sampled."""
    reward: float | None
    """None where it could not be computed, which is not 0."""
    finish_reason: str
    """`stop` or `length`; only the latter means truncated."""
    group_is_flat: bool | None = None
    """Whether all completions of its group are equally correct; None where only their rewards can tell."""
    reference_logprobs: NDArray[np.float32] | None = None
    """[T] under the frozen reference; None where nothing compares with it."""
    values: NDArray[np.float32] | None = None
    """[T] the critic's value of the state before each token; None without a critic."""
    advantages: NDArray[np.float32] | None = None
    """[T] of an earlier call on the same batch; None where they are still to be computed."""
    old_logprobs: NDArray[np.float32] | None = None
    """[T] under the policy that sampled, by that earlier call; None where it did not need them."""

    def __post_init__(self) -> None:
        SequenceRow.__post_init__(self)
        for name in ("rollout_logprobs", *_OPTIONAL):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._checked(name))

    def _checked(self, name: str) -> NDArray[np.float32]:
        numbers = np.asarray(getattr(self, name), dtype=np.float32)
        if numbers.shape != self.completion_token_ids.shape:
            raise InvalidRows(f"{self.label} has {name} that do not fit its {self.num_tokens} completion tokens")
        if not np.isfinite(numbers[self.loss_mask]).all():
            raise InvalidRows(f"{self.label} has {name} that are not finite at a trained token")
        return numbers

    @property
    def is_truncated(self) -> bool:
        """Whether it was cut at the longest allowed length; a completion may also end in its last token by itself."""
        return self.finish_reason == "length"
