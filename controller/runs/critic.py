"""The critic's three calls: its first version, the values of a batch, its next version."""

from collections.abc import Sequence

from controller.runs.config.critic_to_wire import critic_optim_config, value_update_config
from controller.runs.config.model_to_wire import training_pass
from controller.runs.context import RunContext
from controller.runs.errors import ContractBroken
from controller.runs.manifest import Manifest
from controller.runs.segments import to_the_end
from controller.scheduling.sharding import cut_into_shards
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.critic import CriticInit, CriticInputs, CriticOutputs, ValuesInputs, ValueUpdateInputs
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.stage import Purpose, Stage
from shared.service.together import together


async def publish_critic(run: RunContext, model: ModelRef) -> PolicyRef:
    """Version 0. Raises ``ContractBroken`` without one."""
    reply = await run.client.call(
        CallKey(run=run.run, purpose=Purpose.INIT, step=0, stage=Stage.CRITIC),
        CriticInputs(operation=CriticInit(model=model)),
        CriticOutputs,
        policy=None,
        threads=run.resources.num_threads,
    )
    return _version(reply, 0)


async def value_batch(
    run: RunContext, head: Manifest, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef
) -> tuple[BlobRef, ...]:
    """Values of all completions of the rows, by shard; none where the head names no critic."""
    critic = head.critic
    if critic is None:
        return ()
    shards = cut_into_shards(row_uids, num_samples=run.config.rollout.n, sequence_tokens=run.config.sequence_tokens)

    async def value(shard: int, rows: tuple[str, ...]) -> BlobRef:
        async def ask(segment: int, partial: BlobRef | None) -> StageReply[CriticOutputs]:
            inputs = ValuesInputs(
                prompts=prompts,
                row_uids=rows,
                num_samples=run.config.rollout.n,
                max_token_len=run.config.values_max_token_len,
                compute=training_pass(run.config),
                partial=partial,
            )
            return await run.client.call(
                CallKey(**batch.model_dump(), stage=Stage.CRITIC, operation="values", shard=shard, segment=segment),
                CriticInputs(operation=inputs),
                CriticOutputs,
                policy=critic,
                threads=run.resources.num_threads,
            )

        return _values(await to_the_end(Stage.CRITIC, ask, lambda outputs: outputs.partial))

    return tuple(await together(value(shard, rows) for shard, rows in enumerate(shards)))


async def update_critic(
    run: RunContext, head: Manifest, critic: PolicyRef, batch: BatchKey, parts: tuple[BatchPart, ...], returns: BlobRef
) -> tuple[StageReply[CriticOutputs], PolicyRef]:
    """Fit the values to the returns, segment after segment. Raises ``ContractBroken`` for another version."""

    async def ask(segment: int, progress: BlobRef | None) -> StageReply[CriticOutputs]:
        inputs = ValueUpdateInputs(
            parts=parts,
            num_samples=run.config.rollout.n,
            returns=returns,
            state=head.critic_state,
            optim=critic_optim_config(run.config, run.prepared.total_steps),
            update=value_update_config(run.config),
            progress=progress,
        )
        return await run.client.call(
            CallKey(**batch.model_dump(), stage=Stage.CRITIC, operation="update", segment=segment),
            CriticInputs(operation=inputs),
            CriticOutputs,
            policy=critic,
            threads=run.resources.num_threads,
        )

    reply = await to_the_end(Stage.CRITIC, ask, lambda outputs: outputs.progress)
    return reply, _version(reply, critic.version + 1)


def _version(reply: StageReply[CriticOutputs], expected: int) -> PolicyRef:
    made = reply.outputs.critic
    if made is None or made.version != expected:
        raise ContractBroken(f"critic did not make version {expected}: swap its image")
    return made


def _values(reply: StageReply[CriticOutputs]) -> BlobRef:
    if reply.outputs.values is None:
        raise ContractBroken("critic answered without values: swap its image")
    return reply.outputs.values
