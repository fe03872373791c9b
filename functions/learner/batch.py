"""Read one batch for training: prompts, completions, scores and per-token numbers become rows.

Refuses what must not be trained on, and a batch that lacks what its algorithm needs.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from functions.learner.errors import MissingValues
from functions.learner.rows import TrainRow
from shared.codec.token_values import TokenValues
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.learner import AdvantagesInputs, UpdateInputs
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import Score, Scores
from shared.service.handler import CallContext
from shared.training.stored_rows import (
    NAMED_IN_MESSAGE,
    read_completions,
    read_prompts,
    read_token_values,
    refuse_foreign,
    refuse_missing,
)


async def read_batch(
    step: BatchKey, inputs: UpdateInputs | AdvantagesInputs, policy: PolicyRef, context: CallContext
) -> list[TrainRow]:
    """The rows of all parts, each sorted by (row, sample), so that the order of arrival cannot matter.

    Rows whose group was dropped are left out. Raises ``InvalidInput`` for a completion without its score,
    ``MissingValues`` for numbers that the algorithm needs and a part does not name, ``MissingBlob`` for what is named
    and not there, ``WrongPolicy`` for a completion of other weights.
    """
    if isinstance(inputs, AdvantagesInputs) or inputs.advantages is not None:
        refuse_repeated_rows(inputs.parts)
    known = await _earlier_credit(inputs, context)
    return [row for part in inputs.parts for row in await _read_part(step, part, inputs, known, policy, context)]


async def _read_part(
    step: BatchKey,
    part: BatchPart,
    inputs: UpdateInputs | AdvantagesInputs,
    known: Mapping[str, TokenValues],
    policy: PolicyRef,
    context: CallContext,
) -> list[TrainRow]:
    shards = [Scores.model_validate_json(await context.blobs.get(ref)) for ref in part.scores]
    dropped = {row for shard in shards for row in shard.dropped_rows}
    scores = {SampleId(score.row_uid, score.sample): score for shard in shards for score in shard.scores}
    kept = [row_uid for row_uid in part.row_uids if row_uid not in dropped]
    prompts = await read_prompts(part.prompts, kept, context)
    batch = step.model_copy(update={"round": part.round})
    completions = await read_completions(batch, kept, inputs.num_samples, context)
    refuse_unscored([id for id in completions if id not in scores])
    refuse_foreign(completions.values(), policy)
    token_values = dict(known)
    for name, refs in required_values(part, inputs).items():
        token_values[name] = await read_token_values(refs, name, context)
    for name, values in token_values.items():
        refuse_missing(name, [id for id in completions if id not in values])
    return [
        train_row(
            prompts[id.row_uid],
            completion,
            scores[id],
            token_values,
            round=part.round,
            group_is_flat=_is_flat(id.row_uid, inputs),
        )
        for id, completion in completions.items()
    ]


def train_row(
    prompt: Prompt,
    completion: Completion,
    score: Score,
    token_values: Mapping[str, TokenValues],
    *,
    round: int,
    group_is_flat: bool | None,
) -> TrainRow:
    """One completion as the learner's mathematics sees it. ``token_values`` by the row's field."""
    return TrainRow(
        row_uid=prompt.row_uid,
        sample=completion.id.sample,
        round=round,
        prompt_token_ids=np.asarray(prompt.token_ids),
        completion_token_ids=completion.token_ids,
        loss_mask=completion.loss_mask,
        rollout_logprobs=completion.rollout_logprobs,
        reward=score.reward,
        finish_reason=completion.finish_reason,
        group_is_flat=group_is_flat,
        **{name: values[completion.id] for name, values in token_values.items()},
    )


def required_values(part: BatchPart, inputs: UpdateInputs | AdvantagesInputs) -> dict[str, Sequence[BlobRef]]:
    """The part's references to the numbers that this call needs, by the row's field. Raises ``MissingValues``."""
    algorithm = inputs.algorithm
    needed: dict[str, Sequence[BlobRef]] = {}
    computes_advantages, computes_loss = True, isinstance(inputs, UpdateInputs)
    if isinstance(inputs, UpdateInputs):
        computes_advantages = inputs.advantages is None
    if computes_advantages and algorithm.needs_values:
        needed["values"] = _named(part.values, "values", "adv_estimator gae")
    if computes_advantages and algorithm.kl_in_reward is not None:
        needed["reference_logprobs"] = _named(part.reference_logprobs, "reference_logprobs", "kl_in_reward")
    if computes_loss and algorithm.kl_loss is not None:
        needed["reference_logprobs"] = _named(part.reference_logprobs, "reference_logprobs", "kl_loss")
    return needed


def refuse_unscored(ids: Sequence[SampleId]) -> None:
    """Raise ``InvalidInput`` if there are any: a missing reward is never a 0."""
    if ids:
        named = ", ".join(map(str, ids[:NAMED_IN_MESSAGE]))
        raise InvalidInput(f"{len(ids)} completions have no score, such as {named}: score the whole batch")


def refuse_repeated_rows(parts: Sequence[BatchPart]) -> None:
    """Raise ``InvalidInput`` for a row in two parts: stored token values know rows, not rounds."""
    seen: set[str] = set()
    for part in parts:
        twice = sorted(seen & set(part.row_uids))
        if twice:
            raise InvalidInput(f"parts: row {twice[0]!r} is in two rounds; stored advantages cannot tell them apart")
        seen.update(part.row_uids)


async def _earlier_credit(inputs: UpdateInputs | AdvantagesInputs, context: CallContext) -> Mapping[str, TokenValues]:
    """What an ``AdvantagesInputs`` call on the same batch stored for its update, by the row's field."""
    if isinstance(inputs, AdvantagesInputs) or inputs.advantages is None:
        return {}
    names = ["advantages"] + (["old_logprobs"] if inputs.algorithm.kl_in_reward is not None else [])
    return {name: await read_token_values([inputs.advantages], name, context) for name in names}


def _is_flat(row_uid: str, inputs: UpdateInputs | AdvantagesInputs) -> bool | None:
    if isinstance(inputs, AdvantagesInputs) or inputs.flat_rows is None:
        return None
    return row_uid in inputs.flat_rows


def _named(refs: Sequence[BlobRef], field: str, key: str) -> Sequence[BlobRef]:
    if not refs:
        raise MissingValues(f"parts.{field}: none are named, and the algorithm's {key} needs them")
    return refs
