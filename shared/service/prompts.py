"""The prompts of a batch, as every stage reads them."""

from pydantic import ValidationError

from shared.contracts.errors import InvalidInput
from shared.contracts.policy import BlobRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.service.handler import CallContext


async def read_prompts(ref: BlobRef, context: CallContext) -> tuple[Prompt, ...]:
    """The batch's prompts. Raises ``MissingBlob``, and ``InvalidInput`` for a blob that holds something else."""
    with context.watch.measure("load"):
        data = await context.blobs.get(ref)
        try:
            # A batch of long prompts takes a while to read, and the loop has heartbeats to send.
            batch = await context.compute(PromptBatch.model_validate_json, data)
        except ValidationError as error:
            where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
            raise InvalidInput(f"prompts: blob {ref.id} is no batch of prompts (at {where or 'its start'})") from error
        return batch.prompts
