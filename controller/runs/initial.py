"""The first head of a run: version 0 of everything that it trains or compares with."""

from controller.runs.config.model_to_wire import lora_config
from controller.runs.context import RunContext
from controller.runs.critic import publish_critic
from controller.runs.errors import ContractBroken
from controller.runs.manifest import Manifest
from shared.contracts.call import CallKey
from shared.contracts.learner import InitInputs, LearnerInputs, LearnerOutputs
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.stage import Purpose, Stage


async def initial_head(run: RunContext) -> Manifest:
    """Publish version 0 of the policy, and of critic and reference where the algorithm has them."""
    config, model = run.config, run.prepared.model
    policy = await _publish(run, model, "main", lora_config(config))
    reference = critic = None
    if config.uses_reference:
        path = config.reference.model.path
        # An adapter's version 0 changes nothing: without it the reference is the same, and loads less.
        frozen = policy.model_copy(update={"adapter": None})
        reference = frozen if path is None else await _publish(run, ModelRef(path=path), "reference", None)
    if config.uses_critic:
        path = config.critic.model.path
        critic = await publish_critic(run, model if path is None else ModelRef(path=path))
    return Manifest(
        step=0,
        data_cursor=0,
        policy=policy,
        state=None,
        critic=critic,
        reference=reference,
        kl_coef=config.initial_kl_coef,
        run_seed=config.trainer.seed,
    )


async def _publish(run: RunContext, model: ModelRef, operation: str, lora: LoraConfig | None) -> PolicyRef:
    """The weights of a model as version 0, with a fresh adapter on demand. Raises ``ContractBroken`` without them."""
    reply = await run.client.call(
        CallKey(run=run.run, purpose=Purpose.INIT, step=0, stage=Stage.LEARNER, operation=operation),
        LearnerInputs(operation=InitInputs(model=model, lora=lora, dtype=run.config.rollout.dtype)),
        LearnerOutputs,
        policy=None,
        threads=run.resources.num_threads,
    )
    if reply.outputs.policy is None or reply.outputs.policy.version != 0:
        raise ContractBroken("learner published no version 0: swap its image")
    if (reply.outputs.policy.adapter is None) != (lora is None):
        raise ContractBroken("learner does not know model.lora_rank: swap its image")
    if reply.outputs.policy.dtype != run.config.rollout.dtype:
        raise ContractBroken("learner does not know rollout.dtype: swap its image")
    return reply.outputs.policy
