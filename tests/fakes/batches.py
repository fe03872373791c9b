"""What every fake stage reads: the prompts and the completions of a batch."""

from collections.abc import Sequence

from shared.codec.completions import decode_completion
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.policy import BlobRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.service.handler import CallContext
from shared.store.blobs import BlobStore


async def read_prompts(blobs: BlobStore, ref: BlobRef) -> dict[str, Prompt]:
    """The batch's prompts by row."""
    batch = PromptBatch.model_validate_json(await blobs.get(ref))
    return {prompt.row_uid: prompt for prompt in batch.prompts}


async def read_completions(
    batch: BatchKey, row_uids: Sequence[str], num_samples: int, context: CallContext
) -> dict[SampleId, Completion]:
    """All completions of the rows. Raises ``InvalidInput`` if some are missing."""
    ids = [SampleId(row_uid, sample) for row_uid in row_uids for sample in range(num_samples)]
    stored = await context.store.work.samples(batch, ids)
    if set(stored) != set(ids):
        raise InvalidInput(f"{len(ids) - len(stored)} completions are missing")
    return {id: decode_completion(data) for id, data in stored.items()}
