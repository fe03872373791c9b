"""Read the completions of a batch from the store, complete and in an order that does not depend on arrival."""

from collections.abc import Iterable, Sequence

import numpy as np

from shared.codec.completions import DamagedCompletion, decode_completion
from shared.codec.token_values import DamagedTokenValues, TokenValues, decode_token_values
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import InvalidInput, MissingBlob, WrongPolicy
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.service.handler import CallContext
from shared.training.rows import SequenceRow

NAMED_IN_MESSAGE = 3


async def read_prompts(ref: BlobRef, row_uids: Iterable[str], context: CallContext) -> dict[str, Prompt]:
    """The prompts of the rows by row uid. Raises ``InvalidInput`` for a row that is not in the batch."""
    wanted = set(row_uids)
    batch = PromptBatch.model_validate_json(await context.blobs.get(ref))
    prompts = {prompt.row_uid: prompt for prompt in batch.prompts if prompt.row_uid in wanted}
    unknown = sorted(wanted - prompts.keys())
    if unknown:
        raise InvalidInput(f"row_uids: {len(unknown)} are not among the prompts, such as {unknown[0]!r}")
    return prompts


async def read_completions(
    batch: BatchKey, row_uids: Iterable[str], num_samples: int, context: CallContext
) -> dict[SampleId, Completion]:
    """Every completion of the rows, in sorted order. Raises ``MissingBlob`` unless all are there and whole."""
    ids = sorted(SampleId(row_uid, sample) for row_uid in row_uids for sample in range(num_samples))
    stored = await context.store.work.samples(batch, ids)
    refuse_missing("completions", [id for id in ids if id not in stored])
    try:
        return {id: decode_completion(stored[id]) for id in ids}
    except DamagedCompletion as error:
        raise MissingBlob(f"a completion of step {batch.step} is damaged: {error}") from error


async def read_token_values(refs: Sequence[BlobRef], name: str, context: CallContext) -> TokenValues:
    """One named vector of several shards together. Raises ``MissingBlob`` where a shard does not hold it."""
    try:
        parts = [decode_token_values(await context.blobs.get(ref), [name])[name] for ref in refs]
    except DamagedTokenValues as error:
        raise MissingBlob(f"the stored {name} are damaged: {error}") from error
    return {id: values for part in parts for id, values in part.items()}


def sequence_row(prompt: Prompt, completion: Completion, *, round: int = 0) -> SequenceRow:
    """One completion behind its prompt."""
    return SequenceRow(
        row_uid=prompt.row_uid,
        sample=completion.id.sample,
        round=round,
        prompt_token_ids=np.asarray(prompt.token_ids),
        completion_token_ids=completion.token_ids,
        loss_mask=completion.loss_mask,
    )


def refuse_missing(what: str, ids: Sequence[SampleId]) -> None:
    """Raise ``MissingBlob`` if there are any."""
    if ids:
        named = ", ".join(map(str, ids[:NAMED_IN_MESSAGE]))
        raise MissingBlob(f"{len(ids)} {what} of the batch are not in the store, such as {named}")


def refuse_foreign(completions: Iterable[Completion], policy: PolicyRef) -> None:
    """Raise ``WrongPolicy`` unless every completion was sampled by exactly this policy version."""
    for completion in completions:
        if (completion.policy_version, completion.weights_digest) != (policy.version, policy.digest):
            raise WrongPolicy(
                f"completion {completion.id} was sampled by version {completion.policy_version} "
                f"({completion.weights_digest[:12]}), the update is of version {policy.version} ({policy.digest[:12]})"
            )
