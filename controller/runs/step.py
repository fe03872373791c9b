"""One synchronous step, in flow order.

    prompts ─▶ schedule ─▶ rollout (N actors) ─▶ reward ─▶ learner ─▶ policy version k+1

Prefill has its place before rollout; reference and critic beside reward. The controller moves references, never
tensors.
"""

from dataclasses import dataclass

from controller.runs.config.to_wire import algorithm_config, optim_config, train_sampling
from controller.runs.context import RunContext
from controller.runs.errors import ContractBroken
from controller.runs.manifest import Manifest
from controller.runs.sampling import publish_prompts, sample_batch
from controller.runs.scoring import reward_metrics, score_batch
from controller.runs.turn_metrics import turn_metrics
from controller.scheduling.plan import plan_step
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.learner import LearnerInputs, LearnerOutputs, UpdateInputs
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Purpose, Stage

ACTOR_HOLD_S = 30.0
"""How long actors are held from a step's begin: about what it costs to drain a replica and to start it again. Where the
rest of the step takes longer they are released, and come back for the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step made: the next head, and what there is to report about it."""

    manifest: Manifest
    metrics: dict[str, float]


async def run_step(run: RunContext, head: Manifest) -> StepOutcome:
    """Run step ``head.step``: sample with the head's policy, score, update."""
    clock = run.platform.now
    began_at = clock()
    prompts, cursor = run.prepared.train_batch(head.data_cursor, run.config.data.train_batch_size)
    row_uids = tuple(prompt.row_uid for prompt in prompts)
    batch = BatchKey(run=run.run, purpose=Purpose.TRAIN, step=head.step)

    plan = plan_step(
        row_uids,
        group_size=run.config.rollout.n,
        resources=run.resources,
        num_actors=run.config.rollout.num_actors,
    )
    await run.platform.scale(Stage.ROLLOUT, plan.num_actors, hold_until=began_at + ACTOR_HOLD_S)
    prompts_ref = await publish_prompts(run, batch, prompts)
    sampling = train_sampling(run.config, run.prepared.eos_token_ids)
    rollouts = await sample_batch(run, batch, plan, prompts_ref, head.policy, sampling)
    sampled_at = clock()

    rewards = await score_batch(run, batch, row_uids, prompts_ref, num_samples=run.config.rollout.n)
    scored_at = clock()

    part = BatchPart(prompts=prompts_ref, row_uids=row_uids, scores=tuple(reply.outputs.scores for reply in rewards))
    update, policy = await update_policy(run, head, batch, (part,), threads=plan.learner_threads)
    ended_at = clock()

    metrics = update.metrics | {
        **reward_metrics(rewards),
        "schedule/num_actors": float(plan.num_actors),
        "timing_s/gen": sampled_at - began_at,
        "timing_s/reward": scored_at - sampled_at,
        "timing_s/update_actor": ended_at - scored_at,
        "timing_s/step": ended_at - began_at,
    }
    if run.config.rollout.multi_turn.enable:
        metrics |= turn_metrics(rollouts)
    return StepOutcome(
        manifest=head.model_copy(
            update={
                "step": head.step + 1,
                "data_cursor": cursor,
                "policy": policy,
                "state": update.outputs.state,
                "previous_policy": head.policy,
            }
        ),
        metrics=metrics,
    )


async def update_policy(
    run: RunContext, head: Manifest, batch: BatchKey, parts: tuple[BatchPart, ...], *, threads: int
) -> tuple[StageReply[LearnerOutputs], PolicyRef]:
    """Ask the learner for version k+1. Raises ``ContractBroken`` if it made another."""
    inputs = UpdateInputs(
        parts=parts,
        num_samples=run.config.rollout.n,
        state=head.state,
        temperature=run.config.rollout.temperature,
        optim=optim_config(run.config, run.prepared.total_steps),
        algorithm=algorithm_config(run.config),
    )
    reply = await run.client.call(
        CallKey(**batch.model_dump(), stage=Stage.LEARNER),
        LearnerInputs(operation=inputs),
        LearnerOutputs,
        policy=head.policy,
        threads=threads,
    )
    made = reply.outputs.policy
    if made is None or made.version != head.policy.version + 1:
        version = "no version" if made is None else f"version {made.version}"
        raise ContractBroken(f"learner made {version} of version {head.policy.version}: swap its image")
    return reply, made
