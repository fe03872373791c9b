"""Sample one batch: queue its work items, send one worker call per actor, see that every completion is there."""

from collections.abc import Sequence

from controller.runs.config.to_wire import multi_turn
from controller.runs.context import RunContext
from controller.runs.errors import StageUnavailable
from controller.runs.segments import MAX_SEGMENTS
from controller.scheduling.plan import StepPlan
from shared.contracts.call import BatchKey, CallKey
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling
from shared.contracts.stage import Stage
from shared.service.together import together

MAX_PASSES = 8
"""Passes over a batch; a second one is rare, and every further one takes another lost worker."""
LOST_LEASE_S = 8.0
"""Longer than a lost worker's lease on its items lasts."""


async def publish_prompts(run: RunContext, batch: BatchKey, prompts: Sequence[Prompt]) -> BlobRef:
    """Store the batch's prompts, for every stage to read by reference."""
    body = PromptBatch(prompts=tuple(prompts)).model_dump_json().encode()
    return await run.blobs.put(run.run, batch.step, f"{batch.purpose}-prompts", body)


async def sample_batch(
    run: RunContext, batch: BatchKey, plan: StepPlan, prompts: BlobRef, policy: PolicyRef, sampling: Sampling
) -> list[RolloutOutputs]:
    """Sample every completion of the batch. Raises ``StageUnavailable`` if some are missing at the end.

    Returns what each call made; what lost workers made is in none of them.
    """
    await run.store.work.put_items(batch, fence=run.fence, assigned=plan.assigned, offered=plan.offered)
    items = [item for queue in (*plan.assigned, plan.offered) for item in queue]
    inputs = RolloutInputs(
        prompts=prompts,
        num_samples=max(len(item.samples) for item in items),
        sampling=sampling,
        run_seed=run.config.trainer.seed,
        max_num_sequences=run.config.rollout.max_num_seqs,
        multi_turn=multi_turn(run.config),
    )
    outputs: list[RolloutOutputs] = []
    expected = sum(len(item.samples) for item in items)
    segments = [0] * plan.num_actors
    for _ in range(MAX_PASSES):
        segments = await together(
            _work(run, batch, shard, segment, inputs, policy, plan.rollout_threads, outputs)
            for shard, segment in enumerate(segments)
        )
        found = await run.store.work.num_samples(batch)
        if found == expected:
            return outputs
        # The last worker left while a lost one's lease still kept its items from everybody.
        await run.platform.sleep(LOST_LEASE_S)
    raise StageUnavailable(f"rollout ended with {found} of {expected} completions: resume the run")


async def _work(
    run: RunContext,
    batch: BatchKey,
    shard: int,
    first: int,
    inputs: RolloutInputs,
    policy: PolicyRef,
    threads: int,
    outputs: list[RolloutOutputs],
) -> int:
    """One actor's calls: as many segments as its deadline cuts the work into, each of whose outputs joins ``outputs``.

    Returns the segment after the last.
    """
    for segment in range(first, MAX_SEGMENTS):
        key = CallKey(**batch.model_dump(), stage=Stage.ROLLOUT, shard=shard, segment=segment)
        reply = await run.client.call(key, inputs, RolloutOutputs, policy=policy, threads=threads)
        outputs.append(reply.outputs)
        if reply.status == "done":
            return segment + 1
    raise StageUnavailable(f"rollout asked to be continued {MAX_SEGMENTS} times")
