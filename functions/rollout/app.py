"""The rollout stage: PROMPTS → COMPLETIONS with their logprobs."""

from typing import ClassVar

from functions.rollout.policy_engine import PolicyEngine
from functions.rollout.worker import RolloutWorker
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import PromptBatch
from shared.contracts.rollout import RolloutInputs, RolloutOutputs
from shared.contracts.stage import Stage
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings


class RolloutHandler:
    """Samples completions with the policy that a call names."""

    stage: ClassVar[Stage] = Stage.ROLLOUT
    exclusive: ClassVar[bool] = True
    inputs = RolloutInputs
    outputs = RolloutOutputs

    def __init__(self, settings: FunctionSettings, policy_engine: PolicyEngine | None = None) -> None:
        self._settings = settings
        self._policy_engine = policy_engine or PolicyEngine()

    async def handle(self, call: StageCall[RolloutInputs], context: CallContext) -> Outcome[RolloutOutputs]:
        """Work off the batch's items. Raises ``InvalidInput``, ``MissingBlob``, ``PoisonedItem``, ``Cancelled``."""
        if call.policy is None:
            raise InvalidInput("policy: a rollout needs the policy version to sample from")
        checked_model(call.policy.model, self._settings)
        with context.watch.measure("load"):
            batch = PromptBatch.model_validate_json(await context.blobs.get(call.inputs.prompts))
        engine = await self._policy_engine.ready(call.policy, context, threads=call.threads)
        prompts = {prompt.row_uid: prompt for prompt in batch.prompts}
        return await RolloutWorker(call, call.policy, prompts, engine, context).run()

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""
