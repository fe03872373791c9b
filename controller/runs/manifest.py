"""The head of a run: one value that names everything the next step needs (DESIGN, rule 5).

A step ends by replacing it in one compare-and-set, so a crash leaves the run before a step or after it.
"""

from pydantic import Field

from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.wire import Wire


class Checkpointed(Wire):
    """A policy version that was written to the checkpoint folder, and whose blobs are kept."""

    step: int = Field(ge=0)
    """Steps finished when it was written: ``global_step_{step}``."""
    folder: str
    policy: PolicyRef
    state: BlobRef | None


class Manifest(Wire):
    """State of the run between two steps."""

    step: int = Field(ge=0)
    """The next step to run; equals the number of finished steps, and the policy's version."""
    data_cursor: int = Field(ge=0)
    """Rows drawn so far."""
    policy: PolicyRef
    state: BlobRef | None
    """The learner's optimizer state; ``None`` before its first update."""
    previous_policy: PolicyRef | None = None
    run_seed: int
    evaluated: tuple[int, ...] = ()
    """Steps at which the held-out set was evaluated."""
    checkpoints: tuple[Checkpointed, ...] = ()

    def kept_blobs(self) -> frozenset[str]:
        """Ids of the blobs that must outlive the step: the head's, the previous version's and the checkpointed."""
        kept = [self.policy.weights, self.state]
        if self.previous_policy is not None:
            kept.append(self.previous_policy.weights)
        for checkpoint in self.checkpoints:
            kept += [checkpoint.policy.weights, checkpoint.state]
        return frozenset(ref.id for ref in kept if ref is not None)
