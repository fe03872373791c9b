"""The head of a run: one value that names everything the next step needs (DESIGN, rule 5).

A step ends by replacing it in one compare-and-set, so a crash leaves the run before a step or after it.
"""

from collections.abc import Iterator

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
    critic: PolicyRef | None = None
    critic_state: BlobRef | None = None
    metric: float | None = None
    """``trainer.best_metric`` of this version; ``None`` where it was not measured."""


class Manifest(Wire):
    """State of the run between two steps."""

    step: int = Field(ge=0)
    """The next step to run; equals the number of finished steps, and the policy's version."""
    first_step: int = Field(ge=0, default=0)
    """Where this run began: 0, or the step of the checkpoint that it was started from."""
    data_cursor: int = Field(ge=0)
    """Rows drawn so far."""
    leftover_rows: tuple[str, ...] = ()
    """Uids of rows that dynamic sampling drew and did not use; the next step takes them first."""
    policy: PolicyRef
    state: BlobRef | None
    """The learner's optimizer state; ``None`` before its first update."""
    packing_plan: BlobRef | None = None
    """How the last step's rows went through the model together: with it, that step can be replayed bit for bit on a
    machine that would pack them otherwise."""
    previous_policy: PolicyRef | None = None
    critic: PolicyRef | None = None
    """The critic's version; ``None`` without a critic."""
    critic_state: BlobRef | None = None
    """The critic's optimizer state; ``None`` before its first update."""
    reference: PolicyRef | None = None
    """The frozen policy that the KL term compares with; ``None`` without one."""
    kl_coef: float | None = None
    """The KL controller's coefficient for the next step; ``None`` without a KL penalty in the reward."""
    run_seed: int
    evaluated: tuple[int, ...] = ()
    """Steps at which the held-out set was evaluated."""
    earlier_history: BlobRef | None = None
    """History, as JSON lines, of the runs whose checkpoint this one began from."""
    checkpoints: tuple[Checkpointed, ...] = ()

    def kept_blobs(self) -> frozenset[str]:
        """Ids of the blobs that must outlive the step: the head's, the previous version's and the checkpointed."""
        return frozenset(ref.id for ref in _refs(self))


def named_blobs(head: Manifest) -> dict[str, BlobRef]:
    """What the next step reads, by the place of its reference in the head: ``policy.weights``, ``state``...

    Neither what only older versions need nor the history.
    """
    past = {"previous_policy", "checkpoints", "earlier_history"}
    named: dict[str, BlobRef] = {}
    for field in Manifest.model_fields.keys() - past:
        value = getattr(head, field)
        if isinstance(value, BlobRef):
            named[field] = value
        elif isinstance(value, Wire):
            named |= {f"{field}.{name}": ref for name, ref in value if isinstance(ref, BlobRef)}
    return dict(sorted(named.items()))


def with_blobs(head: Manifest, refs: dict[str, BlobRef]) -> Manifest:
    """The head with other references in the places that ``named_blobs`` names."""
    update: dict[str, object] = {}
    for name, ref in refs.items():
        field, _, part = name.partition(".")
        if part:
            owner = update.get(field, getattr(head, field))
            if not isinstance(owner, Wire):
                raise ValueError(f"the head has no {field} that {name} could be a part of")
            update[field] = owner.model_copy(update={part: ref})
        else:
            update[field] = ref
    return head.model_copy(update=update)


def _refs(value: object) -> Iterator[BlobRef]:
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, Wire):
        for _, part in value:
            yield from _refs(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from _refs(part)
