"""Read what a value update is fitted to: completions, the values they had, the returns that the learner stored."""

import numpy as np

from functions.critic.rows import ValueRow
from shared.codec.token_values import TokenValues
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey
from shared.contracts.critic import ValueUpdateInputs
from shared.contracts.errors import InvalidInput
from shared.service.handler import CallContext
from shared.training.stored_rows import read_completions, read_prompts, read_token_values, refuse_missing


async def read_value_rows(step: BatchKey, inputs: ValueUpdateInputs, context: CallContext) -> list[ValueRow]:
    """The rows that have returns; a group that the learner left out has none.

    Raises ``InvalidInput`` where no row has any, ``MissingBlob`` for values or completions that are not stored.
    """
    returns = await read_token_values([inputs.returns], "returns", context)
    rows = [row for part in inputs.parts for row in await _read_part(step, part, inputs.num_samples, returns, context)]
    if not rows:
        raise InvalidInput("returns: they belong to none of the rows of the parts")
    return rows


async def _read_part(
    step: BatchKey, part: BatchPart, num_samples: int, returns: TokenValues, context: CallContext
) -> list[ValueRow]:
    with_returns = {id.row_uid for id in returns}
    row_uids = [row_uid for row_uid in part.row_uids if row_uid in with_returns]
    prompts = await read_prompts(part.prompts, row_uids, context)
    batch = step.model_copy(update={"round": part.round})
    completions = await read_completions(batch, row_uids, num_samples, context)
    values = await read_token_values(part.values, "values", context)
    refuse_missing("values", [id for id in completions if id not in values])
    refuse_missing("returns", [id for id in completions if id not in returns])
    return [
        ValueRow(
            row_uid=id.row_uid,
            sample=id.sample,
            round=part.round,
            prompt_token_ids=np.asarray(prompts[id.row_uid].token_ids),
            completion_token_ids=completion.token_ids,
            loss_mask=completion.loss_mask,
            old_values=values[id],
            returns=returns[id],
        )
        for id, completion in completions.items()
    ]
