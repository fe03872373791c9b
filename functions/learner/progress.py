"""What an interrupted step needs to go on: where it stood, and what was known before its first update only.

Shapes: B rows, T longest completion.
"""

from dataclasses import dataclass

from torch import Tensor

from shared.training.metric_sums import MetricSums
from shared.training.state_blob import decode_state, encode_state

KIND = "update progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateProgress:
    """A step of several updates, cut between two of them. Weights and optimizer state are stored beside it."""

    next_update: int
    old_logprobs: Tensor
    """[B, T] under the policy before the first update, which the changed weights no longer give."""
    sums: MetricSums
    """Metrics of the updates so far."""

    def to_blob(self) -> bytes:
        """As bytes for the blob store; numbers come back exactly."""
        facts = {"next_update": self.next_update, "sums": self.sums.sums, "maxima": self.sums.maxima}
        return encode_state(KIND, {"old_logprobs": self.old_logprobs}, facts)

    @classmethod
    def from_blob(cls, blob: bytes) -> "UpdateProgress":
        """Inverse of `to_blob`. Raises DamagedState."""
        tensors, facts = decode_state(KIND, blob)
        sums = {name: (total, weight) for name, (total, weight) in facts["sums"].items()}
        return cls(
            next_update=facts["next_update"],
            old_logprobs=tensors["old_logprobs"],
            sums=MetricSums(sums, facts["maxima"]),
        )
