"""Read one batch for training: prompts, completions and scores become rows. Refuses what must not be trained on."""

from collections.abc import Iterable, Sequence

from functions.learner.rows import TrainRow
from shared.codec.completions import DamagedCompletion, decode_completion
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import InvalidInput, MissingBlob, WrongPolicy
from shared.contracts.learner import UpdateInputs
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import Score, Scores
from shared.service.handler import CallContext

NAMED_IN_MESSAGE = 3


async def read_batch(batch: BatchKey, inputs: UpdateInputs, policy: PolicyRef, context: CallContext) -> list[TrainRow]:
    """The rows of the batch, sorted by (row, sample), so that the order of arrival cannot matter.

    Rows whose group was dropped are left out. Raises ``InvalidInput`` for a completion without its score,
    ``MissingBlob`` for a score without its completion, ``WrongPolicy`` for a completion of other weights.
    """
    prompts = PromptBatch.model_validate_json(await context.blobs.get(inputs.prompts)).prompts
    parts = [Scores.model_validate_json(await context.blobs.get(ref)) for ref in inputs.scores]
    dropped = {row for part in parts for row in part.dropped_rows}
    scores = {SampleId(score.row_uid, score.sample): score for part in parts for score in part.scores}
    kept = [prompt for prompt in prompts if prompt.row_uid not in dropped]
    ids = sorted(SampleId(prompt.row_uid, sample) for prompt in kept for sample in range(inputs.num_samples))
    stored = await context.store.work.samples(batch, ids)
    refuse_missing("completions", [id for id in ids if id not in stored])
    refuse_unscored([id for id in ids if id not in scores])
    try:
        completions = {id: decode_completion(stored[id]) for id in ids}
    except DamagedCompletion as error:
        raise MissingBlob(f"a completion of batch {batch.step} is damaged: {error}") from error
    refuse_foreign(completions.values(), policy)
    by_row = {prompt.row_uid: prompt for prompt in kept}
    return [train_row(by_row[id.row_uid], completions[id], scores[id]) for id in ids]


def train_row(prompt: Prompt, completion: Completion, score: Score) -> TrainRow:
    """One completion as the learner's mathematics sees it."""
    return TrainRow(
        row_uid=prompt.row_uid,
        sample=completion.id.sample,
        prompt_token_ids=prompt.token_ids,
        completion_token_ids=completion.token_ids,
        loss_mask=completion.loss_mask,
        rollout_logprobs=completion.rollout_logprobs,
        reward=score.reward,
        finish_reason=completion.finish_reason,
    )


def refuse_missing(what: str, ids: Sequence[SampleId]) -> None:
    """Raise ``MissingBlob`` if there are any."""
    if ids:
        named = ", ".join(map(str, ids[:NAMED_IN_MESSAGE]))
        raise MissingBlob(f"{len(ids)} {what} of the batch are not in the store, such as {named}")


def refuse_unscored(ids: Sequence[SampleId]) -> None:
    """Raise ``InvalidInput`` if there are any: a missing reward is never a 0."""
    if ids:
        named = ", ".join(map(str, ids[:NAMED_IN_MESSAGE]))
        raise InvalidInput(f"{len(ids)} completions have no score, such as {named}: score the whole batch")


def refuse_foreign(completions: Iterable[Completion], policy: PolicyRef) -> None:
    """Raise ``WrongPolicy`` unless every completion was sampled by exactly this policy version."""
    for completion in completions:
        if (completion.policy_version, completion.weights_digest) != (policy.version, policy.digest):
            raise WrongPolicy(
                f"completion {completion.id} was sampled by version {completion.policy_version} "
                f"({completion.weights_digest[:12]}), the update is of version {policy.version} ({policy.digest[:12]})"
            )
