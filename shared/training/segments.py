"""A step that its deadline cuts into several calls: what one of them leaves for the next."""

from pydantic import Field, ValidationError

from shared.contracts.call import CallKey
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.wire import Wire
from shared.service.handler import CallContext
from shared.training.errors import DamagedState
from shared.training.model_in_training import ModelInTraining, Trained
from shared.training.progress import UpdateProgress


class Segment(Wire):
    """Where the step stands after a call that could not complete it. Everything that it names is stored."""

    started_from: str
    """Digest of the version that the step updates."""
    policy: PolicyRef
    """Weights with the updates so far; the version itself before the first."""
    state: BlobRef | None
    """Optimizer state that belongs to them."""
    progress: BlobRef | None = None
    """An ``UpdateProgress``; ``None`` at the step's beginning."""
    num_idle: int = Field(ge=0, default=0)
    """Calls in a row that had no time for a single micro-batch."""


async def read_segment(ref: BlobRef | None, policy: PolicyRef, state: BlobRef | None, context: CallContext) -> Segment:
    """Where an update of ``policy`` stands: at its beginning, if no ref says more.

    Raises ``DamagedState``, ``MissingBlob``.
    """
    if ref is None:
        return Segment(started_from=policy.digest, policy=policy, state=state)
    try:
        segment = Segment.model_validate_json(await context.blobs.get(ref))
    except ValidationError as error:
        raise DamagedState(f"progress: blob {ref.id} is no cut step") from error
    if segment.started_from != policy.digest:
        raise DamagedState(
            f"progress: the cut step updates {segment.started_from[:12]}, the call is of {policy.digest[:12]}"
        )
    return segment


async def read_progress(segment: Segment, context: CallContext) -> UpdateProgress | None:
    """How far the step is, ``None`` at its beginning. Raises ``DamagedState``, ``MissingBlob``."""
    if segment.progress is None:
        return None
    return await context.compute(UpdateProgress.from_blob, await context.blobs.get(segment.progress))


async def store_weights(
    models: ModelInTraining, trained: Trained, key: CallKey, segment: Segment, policy: PolicyRef, context: CallContext
) -> Segment:
    """Store weights between two versions. They belong to the step, and go with its batch."""
    made, state = await models.publish(trained, policy.version, policy.model, key.run, key.step, context)
    return segment.model_copy(update={"policy": made, "state": state})


async def store_progress(
    key: CallKey, segment: Segment, progress: UpdateProgress, num_passes: int, context: CallContext
) -> Segment:
    """Store how far the step is after a call of so many micro-batches."""
    if not num_passes:
        return segment.model_copy(update={"num_idle": segment.num_idle + 1})
    ref = await context.blobs.put(key.run, key.step, "progress", await context.compute(progress.to_blob))
    return segment.model_copy(update={"progress": ref, "num_idle": 0})


async def write_segment(key: CallKey, segment: Segment, context: CallContext) -> BlobRef:
    """Store it, to be named by the call that goes on."""
    return await context.blobs.put(key.run, key.step, "segment", segment.model_dump_json().encode())
