"""Score one batch: one reward call per shard of rows."""

from collections.abc import Sequence

from controller.runs.config.to_wire import reward_spec
from controller.runs.context import RunContext
from controller.scheduling.sharding import cut_into_shards
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.policy import BlobRef
from shared.contracts.reward import RewardInputs, RewardOutputs
from shared.contracts.stage import Stage
from shared.service.together import together


async def score_batch(
    run: RunContext, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef, *, num_samples: int
) -> list[StageReply[RewardOutputs]]:
    """The scores of all completions of the batch, one reply per shard."""
    shards = cut_into_shards(row_uids, num_samples=num_samples, sequence_tokens=run.config.sequence_tokens)
    return await together(
        run.client.call(
            CallKey(**batch.model_dump(), stage=Stage.REWARD, shard=shard),
            RewardInputs(
                prompts=prompts,
                row_uids=rows,
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


def flat_rows(replies: Sequence[StageReply[RewardOutputs]]) -> tuple[str, ...]:
    """Rows whose completions are all equally correct, which dynamic sampling leaves out."""
    return tuple(row for reply in replies for row in reply.outputs.flat_rows)


def reward_metrics(replies: Sequence[StageReply[RewardOutputs]]) -> dict[str, float]:
    """Each part's mean over the completions that it applies to, and how many had no reward."""
    outputs = [reply.outputs for reply in replies]
    metrics = {
        "reward/num_dropped_groups": float(sum(output.num_dropped_groups for output in outputs)),
        "reward/num_failed_groups": float(sum(output.num_failed_groups for output in outputs)),
    }
    for name in sorted({part.name for output in outputs for part in output.parts}):
        found = [part for output in outputs for part in output.parts if part.name == name]
        num_scored = sum(part.num_scored for part in found)
        # A shard in which the part applies to nothing does not list it.
        num_none = sum(output.num_scored for output in outputs) - num_scored
        metrics[f"rewards/{name}/mean"] = sum(part.mean * part.num_scored for part in found) / max(1, num_scored)
        metrics[f"rewards/{name}/num_none"] = float(num_none)
    return metrics
