"""Sample one batch: queue its work items, send one worker call per actor, see that every completion is there."""

from collections.abc import Sequence

from controller.runs.actor_hold import ActorHold
from controller.runs.config.to_wire import multi_turn
from controller.runs.context import RunContext
from controller.runs.errors import StageUnavailable
from controller.runs.migrating import Migration, WorkerCalls, watch_actors
from controller.runs.segments import MAX_SEGMENTS
from controller.scheduling.plan import StepPlan
from shared.contracts.call import BatchKey, CallKey
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling
from shared.contracts.stage import Stage
from shared.service.beside import beside
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
    run: RunContext,
    batch: BatchKey,
    plan: StepPlan,
    prompts: BlobRef,
    policy: PolicyRef,
    sampling: Sampling,
    *,
    migration: Migration | None = None,
    hold: ActorHold | None = None,
) -> list[RolloutOutputs]:
    """Sample every completion of the batch. Raises ``StageUnavailable`` if some are missing at the end.

    With ``migration``, actors whose rest others can take are cut; ``hold`` shrinks as actors run out of work, down to
    the last one.
    Returns what each call made; what lost workers made is in none of them.
    """
    work = run.store.work
    await work.put_items(batch, fence=run.fence, assigned=plan.assigned, offered=plan.offered)
    items = [item for queue in (*plan.assigned, plan.offered) for item in queue]
    inputs = RolloutInputs(
        prompts=prompts,
        num_samples=max(len(item.samples) for item in items),
        sampling=sampling,
        run_seed=run.config.trainer.seed,
        max_num_sequences=run.config.rollout.max_num_seqs,
        multi_turn=multi_turn(run.config),
        prefix_kv=plan.prefill is not None and plan.prefill.is_apart,
    )
    outputs: list[RolloutOutputs] = []
    expected, found = sum(len(item.samples) for item in items), 0
    beside_learner = frozenset(filter(plan.is_beside_learner, range(plan.num_actors)))
    calls = WorkerCalls(num_shards=plan.num_actors, beside_learner=beside_learner)
    segments = [0] * plan.num_actors
    num_actors = plan.num_actors
    for _ in range(MAX_PASSES):
        async with beside(watch_actors(run, batch, calls, migration, hold)):
            segments[:num_actors] = await together(
                _work(run, batch, shard, segments[shard], inputs, policy, plan, calls, outputs)
                for shard in range(num_actors)
            )
        before, found = found, await work.num_samples(batch)
        if found == expected:
            return outputs
        # What was left to an actor that had just ended is for anybody now.
        await work.offer_queues(batch, shards=range(plan.num_actors))
        if found == before or await work.num_queued(batch) == 0:
            # The last worker left while a lost one's lease still kept its items from everybody.
            await run.platform.sleep(LOST_LEASE_S)
        # What is missing is little, as a rule.
        num_actors = min(num_actors, max(1, -(-(expected - found) // inputs.max_num_sequences)))
    raise StageUnavailable(f"rollout ended with {found} of {expected} completions: resume the run")


async def _work(
    run: RunContext,
    batch: BatchKey,
    shard: int,
    first: int,
    inputs: RolloutInputs,
    policy: PolicyRef,
    plan: StepPlan,
    calls: WorkerCalls,
    outputs: list[RolloutOutputs],
) -> int:
    """One actor's calls: as many segments as its deadline cuts the work into, each of whose outputs joins ``outputs``.

    Returns the segment after the last.
    """
    # Where the learner's process can sample, the longest work is there: it has the weights in memory.
    beside = Stage.LEARNER if shard in calls.beside_learner else None
    for segment in range(first, MAX_SEGMENTS):
        calls.open[shard] = segment
        key = CallKey(**batch.model_dump(), stage=Stage.ROLLOUT, shard=shard, segment=segment)
        reply = await run.client.call(
            key, inputs, RolloutOutputs, policy=policy, threads=plan.rollout_threads, beside=beside
        )
        outputs.append(reply.outputs)
        if reply.status == "done":
            calls.note_answer(shard, reply.served.instance)
            return segment + 1
    raise StageUnavailable(f"rollout asked to be continued {MAX_SEGMENTS} times")
