"""Score one batch: one reward call per shard of rows."""

from collections.abc import Sequence

from controller.runs.config.to_wire import reward_spec
from controller.runs.context import RunContext
from controller.runs.together import together
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.policy import BlobRef
from shared.contracts.reward import RewardInputs, RewardOutputs
from shared.contracts.stage import Stage

ROWS_PER_CALL = 512
"""Rows that one reward call scores; more rows are scored by several replicas at once."""


async def score_batch(
    run: RunContext, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef, *, num_samples: int
) -> list[StageReply[RewardOutputs]]:
    """The scores of all completions of the batch, one reply per shard."""
    shards = [row_uids[start : start + ROWS_PER_CALL] for start in range(0, len(row_uids), ROWS_PER_CALL)]
    return await together(
        *(
            run.client.call(
                CallKey(**batch.model_dump(), stage=Stage.REWARD, shard=shard),
                RewardInputs(
                    prompts=prompts,
                    row_uids=tuple(rows),
                    num_samples=num_samples,
                    model=run.prepared.model,
                    reward=reward_spec(run.config),
                    timeout_s=run.config.reward.timeout_s,
                    num_attempts=run.config.reward.num_attempts,
                    on_failure=run.config.reward.on_failure,
                ),
                RewardOutputs,
                policy=None,
            )
            for shard, rows in enumerate(shards)
        )
    )


def mean_reward(replies: Sequence[StageReply[RewardOutputs]]) -> float:
    """Mean over all scored completions."""
    num_scored = sum(reply.outputs.num_scored for reply in replies)
    return sum(reply.outputs.mean_reward * reply.outputs.num_scored for reply in replies) / max(1, num_scored)
