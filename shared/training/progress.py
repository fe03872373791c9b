"""How far a step is: what it needs to go on besides weights and optimizer state.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from shared.training.batching import MiniBatch
from shared.training.errors import DamagedState
from shared.training.metric_sums import MetricSums
from shared.training.state_blob import decode_state, encode_state

KIND = "update progress"
OLD_LOGPROBS = "old_logprobs"
GRADIENT = "gradient."
"""Begins the name of a parameter's gradient."""


@dataclass(slots=True, kw_only=True)
class UpdateProgress:
    """A step that is cut between two of its micro-batches, whether in a pass for logprobs or in an update."""

    packing_plan: list[MiniBatch] | None = None
    """Row numbers of every micro-batch of every mini-batch; None before it is made."""
    old_logprobs: Tensor | None = None
    """[B, T] under the policy before the first update, which the changed weights no longer give; 0 in rows that are
    not scored yet."""
    num_scored: int = 0
    """Micro-batches that `old_logprobs` covers."""
    next_update: int = 0
    """Updates that the weights contain."""
    next_micro_batch: int = 0
    """Micro-batches of the update after these whose gradient is in `gradient`."""
    gradient: dict[str, Tensor] = field(default_factory=dict)
    """Summed over these, by parameter name; one that none of them reached has none."""
    terms: dict[str, float] = field(default_factory=dict)
    """Parts of the loss, summed over these."""
    sums: MetricSums = field(default_factory=MetricSums)
    """Metrics so far."""

    def branch(self) -> "UpdateProgress":
        """The same place, to go on from without moving this one."""
        sums = MetricSums(dict(self.sums.sums), dict(self.sums.maxima))
        return replace(self, gradient=dict(self.gradient), terms=dict(self.terms), sums=sums)

    def refuse_foreign_plan(self, num_rows: int) -> None:
        """Raises DamagedState for the packing plan of another batch."""
        planned = [
            index for mini_batch in self.packing_plan or [] for micro_batch in mini_batch for index in micro_batch
        ]
        if len(set(planned)) < len(planned) or not set(planned) <= set(range(num_rows)):
            raise DamagedState(f"the packing plan belongs to another batch: it does not fit {num_rows} rows")

    def refuse_foreign_place(self, updates: Sequence[MiniBatch]) -> None:
        """Raises DamagedState where the place is in none of the step's updates."""
        # Behind the last update nothing is left, as if one of no micro-batches began there.
        sizes = [len(mini_batch) for mini_batch in updates] + [1]
        if self.next_update >= len(sizes) or self.next_micro_batch >= sizes[self.next_update]:
            raise DamagedState(
                f"the step's progress belongs to another batch: it goes on with update {self.next_update}, "
                f"micro-batch {self.next_micro_batch}; this batch has {len(updates)} updates"
            )

    def to_blob(self) -> bytes:
        """As bytes for the blob store; numbers come back exactly."""
        tensors = {f"{GRADIENT}{name}": tensor for name, tensor in self.gradient.items()}
        if self.old_logprobs is not None:
            tensors[OLD_LOGPROBS] = self.old_logprobs
        facts = {
            "packing_plan": self.packing_plan,
            "num_scored": self.num_scored,
            "next_update": self.next_update,
            "next_micro_batch": self.next_micro_batch,
            "terms": self.terms,
            "sums": self.sums.sums,
            "maxima": self.sums.maxima,
        }
        return encode_state(KIND, tensors, facts)

    @classmethod
    def from_blob(cls, blob: bytes) -> "UpdateProgress":
        """Inverse of `to_blob`. Raises DamagedState."""
        tensors, facts = decode_state(KIND, blob)
        old_logprobs = tensors.pop(OLD_LOGPROBS, None)
        try:
            sums = {name: (total, weight) for name, (total, weight) in facts.pop("sums").items()}
            return cls(
                old_logprobs=old_logprobs,
                gradient={name.removeprefix(GRADIENT): tensor for name, tensor in tensors.items()},
                sums=MetricSums(sums, facts.pop("maxima")),
                **facts,
            )
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DamagedState(f"the blob is no progress of an update: {error!r}") from error
