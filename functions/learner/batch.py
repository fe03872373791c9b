"""Read one batch for training: prompts, completions and scores become rows. Refuses what must not be trained on."""

from collections.abc import Sequence

from functions.learner.rows import TrainRow
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import Score, Scores
from shared.service.handler import CallContext
from shared.training.stored_rows import (
    NAMED_IN_MESSAGE,
    read_completions,
    read_prompts,
    refuse_foreign,
)


async def read_batch(
    step: BatchKey, parts: Sequence[BatchPart], num_samples: int, policy: PolicyRef, context: CallContext
) -> list[TrainRow]:
    """The rows of all parts, each sorted by (row, sample), so that the order of arrival cannot matter.

    Rows whose group was dropped are left out. Raises ``InvalidInput`` for a completion without its score,
    ``MissingBlob`` for a score without its completion, ``WrongPolicy`` for a completion of other weights.
    """
    return [row for part in parts for row in await _read_part(step, part, num_samples, policy, context)]


async def _read_part(
    step: BatchKey, part: BatchPart, num_samples: int, policy: PolicyRef, context: CallContext
) -> list[TrainRow]:
    shards = [Scores.model_validate_json(await context.blobs.get(ref)) for ref in part.scores]
    dropped = {row for shard in shards for row in shard.dropped_rows}
    scores = {SampleId(score.row_uid, score.sample): score for shard in shards for score in shard.scores}
    kept = [row_uid for row_uid in part.row_uids if row_uid not in dropped]
    prompts = await read_prompts(part.prompts, kept, context)
    batch = step.model_copy(update={"round": part.round})
    completions = await read_completions(batch, kept, num_samples, context)
    refuse_unscored([id for id in completions if id not in scores])
    refuse_foreign(completions.values(), policy)
    return [
        train_row(prompts[id.row_uid], completion, scores[id], round=part.round)
        for id, completion in completions.items()
    ]


def train_row(prompt: Prompt, completion: Completion, score: Score, *, round: int = 0) -> TrainRow:
    """One completion as the learner's mathematics sees it."""
    return TrainRow(
        row_uid=prompt.row_uid,
        sample=completion.id.sample,
        round=round,
        prompt_token_ids=prompt.token_ids,
        completion_token_ids=completion.token_ids,
        loss_mask=completion.loss_mask,
        rollout_logprobs=completion.rollout_logprobs,
        reward=score.reward,
        finish_reason=completion.finish_reason,
    )


def refuse_unscored(ids: Sequence[SampleId]) -> None:
    """Raise ``InvalidInput`` if there are any: a missing reward is never a 0."""
    if ids:
        named = ", ".join(map(str, ids[:NAMED_IN_MESSAGE]))
        raise InvalidInput(f"{len(ids)} completions have no score, such as {named}: score the whole batch")
