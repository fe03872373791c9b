"""Update the policy and, with a critic, the values: the end of a step."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.runs.beside import beside
from controller.runs.config.to_wire import algorithm_config, optim_config
from controller.runs.context import RunContext
from controller.runs.critic import update_critic
from controller.runs.errors import ContractBroken
from controller.runs.manifest import Manifest
from controller.runs.segments import to_the_end
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.learner import AdvantagesInputs, LearnerInputs, LearnerOutputs, UpdateInputs
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """The versions that a step ends with."""

    policy: PolicyRef
    state: BlobRef | None
    critic: PolicyRef | None
    critic_state: BlobRef | None
    kl_coef: float | None
    packing_plan: BlobRef | None
    """How the update's rows went through the model together."""
    metrics: dict[str, float]
    """Of all calls; the learner's stand where a critic names the same."""
    timings_s: Mapping[str, float]
    """Seconds of each call: ``update_actor`` and, with a critic, ``adv`` and ``update_critic``."""


async def update_models(
    run: RunContext,
    head: Manifest,
    batch: BatchKey,
    parts: tuple[BatchPart, ...],
    *,
    flat_rows: tuple[str, ...],
    threads: int,
) -> Updated:
    """Version k+1 of the policy, and of the critic where there is one.

    With a critic the learner first says advantages and returns; then both are updated beside each other. ``flat_rows``
    are the rows whose completions are all equally correct.
    """
    critic, clock = head.critic, run.platform.now
    began_at = clock()
    if critic is None:
        reply, policy = await update_policy(run, head, batch, parts, None, flat_rows, threads=threads)
        return Updated(
            policy=policy,
            state=reply.outputs.state,
            critic=None,
            critic_state=None,
            kl_coef=reply.outputs.kl_coef,
            packing_plan=reply.outputs.packing_plan,
            metrics=reply.metrics,
            timings_s={"update_actor": clock() - began_at},
        )
    said, returns = await _advantages(run, head, batch, parts, threads=threads)
    said_at = clock()
    async with beside(clock, at_once=not run.resources.shared_threads) as stages:
        fitting = stages.start("update_critic", update_critic, run, head, critic, batch, parts, returns)
        updating = stages.start(
            "update_actor", update_policy, run, head, batch, parts, returns, flat_rows, threads=threads
        )
    (reply, policy), (fitted, next_critic) = updating.result(), fitting.result()
    return Updated(
        policy=policy,
        state=reply.outputs.state,
        critic=next_critic,
        critic_state=fitted.outputs.state,
        # Where the rewards became advantages, their KL was measured: the update has not seen it.
        kl_coef=said.outputs.kl_coef,
        packing_plan=reply.outputs.packing_plan,
        metrics={**fitted.metrics, **said.metrics, **reply.metrics},
        timings_s={"adv": said_at - began_at, **stages.timings_s},
    )


async def update_policy(
    run: RunContext,
    head: Manifest,
    batch: BatchKey,
    parts: tuple[BatchPart, ...],
    advantages: BlobRef | None,
    flat_rows: tuple[str, ...],
    *,
    threads: int,
) -> tuple[StageReply[LearnerOutputs], PolicyRef]:
    """Ask the learner for version k+1, segment after segment. Raises ``ContractBroken`` if it made another."""

    async def ask(segment: int, progress: BlobRef | None) -> StageReply[LearnerOutputs]:
        inputs = UpdateInputs(
            parts=parts,
            num_samples=run.config.rollout.n,
            state=head.state,
            temperature=run.config.rollout.temperature,
            optim=optim_config(run.config, run.prepared.total_steps),
            algorithm=algorithm_config(run.config),
            advantages=advantages,
            kl_coef=head.kl_coef,
            flat_rows=flat_rows,
            progress=progress,
        )
        return await run.client.call(
            CallKey(**batch.model_dump(), stage=Stage.LEARNER, segment=segment),
            LearnerInputs(operation=inputs),
            LearnerOutputs,
            policy=head.policy,
            threads=threads,
        )

    reply = await to_the_end(Stage.LEARNER, ask, lambda outputs: outputs.progress)
    return reply, _version(reply.outputs.policy, head.policy.version + 1)


async def _advantages(
    run: RunContext, head: Manifest, batch: BatchKey, parts: tuple[BatchPart, ...], *, threads: int
) -> tuple[StageReply[LearnerOutputs], BlobRef]:
    inputs = AdvantagesInputs(
        parts=parts,
        num_samples=run.config.rollout.n,
        temperature=run.config.rollout.temperature,
        algorithm=algorithm_config(run.config),
        state=head.state if head.policy.is_rounded else None,
        kl_coef=head.kl_coef,
    )
    reply = await run.client.call(
        CallKey(**batch.model_dump(), stage=Stage.LEARNER, operation="advantages"),
        LearnerInputs(operation=inputs),
        LearnerOutputs,
        policy=head.policy,
        threads=threads,
    )
    if reply.outputs.advantages is None:
        raise ContractBroken("learner answered without advantages: swap its image")
    return reply, reply.outputs.advantages


def _version(made: PolicyRef | None, expected: int) -> PolicyRef:
    if made is None or made.version != expected:
        version = "no version" if made is None else f"version {made.version}"
        raise ContractBroken(f"learner made {version} of version {expected - 1}: swap its image")
    return made
