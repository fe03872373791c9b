"""The packing plan on its way through the blob store: a replay elsewhere adds gradients up in the same order."""

from pydantic import NonNegativeInt, TypeAdapter, ValidationError

from shared.contracts.call import StageCall
from shared.contracts.learner import LearnerInputs
from shared.contracts.policy import BlobRef
from shared.service.handler import CallContext
from shared.training.batching import MiniBatch
from shared.training.errors import DamagedState

_PLAN: TypeAdapter[list[list[list[int]]]] = TypeAdapter(list[list[list[NonNegativeInt]]])


async def write_plan(call: StageCall[LearnerInputs], plan: list[MiniBatch], context: CallContext) -> BlobRef:
    """Store it with the step."""
    return await context.blobs.put(call.key.run, call.key.step, "packing-plan", _PLAN.dump_json(plan))


async def read_plan(ref: BlobRef, context: CallContext) -> list[MiniBatch]:
    """A stored plan. Raises ``DamagedState``, ``MissingBlob``."""
    try:
        return _PLAN.validate_json(await context.blobs.get(ref))
    except ValidationError as error:
        raise DamagedState(f"packing_plan: blob {ref.id} is no packing plan") from error
