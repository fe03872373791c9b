"""Ask what the frozen policy thinks of a batch: one call per shard of rows."""

from collections.abc import Sequence

from controller.runs.config.model_to_wire import training_pass
from controller.runs.context import RunContext
from controller.runs.errors import ContractBroken
from controller.runs.manifest import Manifest
from controller.runs.segments import to_the_end
from controller.scheduling.sharding import cut_into_shards
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.policy import BlobRef
from shared.contracts.reference import ReferenceInputs, ReferenceOutputs
from shared.contracts.stage import Stage
from shared.service.together import together


async def reference_batch(
    run: RunContext, head: Manifest, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef
) -> tuple[BlobRef, ...]:
    """Reference logprobs of all completions of the rows, by shard; none where the head names no reference."""
    reference = head.reference
    if reference is None:
        return ()
    shards = cut_into_shards(row_uids, num_samples=run.config.rollout.n, sequence_tokens=run.config.sequence_tokens)

    async def score(shard: int, rows: tuple[str, ...]) -> BlobRef:
        async def ask(segment: int, partial: BlobRef | None) -> StageReply[ReferenceOutputs]:
            return await run.client.call(
                CallKey(**batch.model_dump(), stage=Stage.REFERENCE, shard=shard, segment=segment),
                ReferenceInputs(
                    prompts=prompts,
                    row_uids=rows,
                    num_samples=run.config.rollout.n,
                    temperature=run.config.rollout.temperature,
                    max_token_len=run.config.reference_max_token_len,
                    compute=training_pass(run.config),
                    partial=partial,
                ),
                ReferenceOutputs,
                policy=reference,
                threads=run.resources.num_threads,
            )

        reply = await to_the_end(Stage.REFERENCE, ask, lambda outputs: outputs.partial)
        if reply.outputs.logprobs is None:
            raise ContractBroken("reference answered without logprobs: swap its image")
        return reply.outputs.logprobs

    return tuple(await together(score(shard, rows) for shard, rows in enumerate(shards)))
