"""A step that its deadline cuts into several calls: what one of them leaves for the next."""

from pydantic import Field, ValidationError

from functions.learner.errors import UpdateTooLong
from functions.learner.progress import UpdateProgress
from functions.learner.time_budget import Pace
from shared.contracts.call import StageCall
from shared.contracts.learner import LearnerInputs
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.wire import Wire
from shared.service.handler import CallContext
from shared.training.errors import DamagedState


class Segment(Wire):
    """Where the step stands after a call that could not complete it. Everything that it names is stored."""

    started_from: str
    """Digest of the policy that the step updates."""
    policy: PolicyRef
    """Weights with the updates so far; the policy itself before the first."""
    state: BlobRef | None
    """Optimizer state that belongs to them."""
    progress: BlobRef | None = None
    """An ``UpdateProgress``; ``None`` at the step's beginning."""
    num_idle: int = Field(ge=0, default=0)
    """Calls in a row that had no time for a single micro-batch."""


def first_segment(policy: PolicyRef, state: BlobRef | None) -> Segment:
    """The step's beginning."""
    return Segment(started_from=policy.digest, policy=policy, state=state)


async def read_segment(ref: BlobRef, policy: PolicyRef, context: CallContext) -> Segment:
    """Where an update of ``policy`` stands. Raises ``DamagedState``, ``MissingBlob``."""
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


async def write_segment(call: StageCall[LearnerInputs], segment: Segment, context: CallContext) -> BlobRef:
    """Store it, to be named by the call that goes on."""
    return await context.blobs.put(call.key.run, call.key.step, "segment", segment.model_dump_json().encode())


def refuse_endless(segment: Segment, pace: Pace, max_token_len: int) -> None:
    """Raises ``UpdateTooLong`` where two calls in a row had no time for one micro-batch: no later one will have.

    One alone may have come late, after a queue or a cold start.
    """
    if segment.num_idle < 2:
        return
    pass_s = pace.s_per_token.get("training", 0.0) * max_token_len
    raise UpdateTooLong(
        f"one micro-batch does not fit into a call: {max_token_len} tokens take about {pass_s:.0f} s here, and storing "
        f"the result {pace.store_s:.0f} s; set a smaller actor.ppo_max_token_len_per_gpu, or a longer timeoutSeconds "
        "of the learner"
    )
