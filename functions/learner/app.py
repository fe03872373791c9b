"""The learner stage: COMPLETIONS + SCORES → POLICY VERSION k+1."""

from typing import ClassVar

from functions.learner.batch import read_batch
from functions.learner.config import LearnerConfig
from functions.learner.trained_policy import TrainedPolicy
from functions.learner.update import UpdateResult, update_policy
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.learner import AdvantagesInputs, InitInputs, LearnerInputs, LearnerOutputs, UpdateInputs
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings


class LearnerHandler:
    """Publishes version 0, and makes version k+1 from version k and its rollouts."""

    stage: ClassVar[Stage] = Stage.LEARNER
    exclusive: ClassVar[bool] = True
    inputs = LearnerInputs
    outputs = LearnerOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._trained = TrainedPolicy()

    async def handle(self, call: StageCall[LearnerInputs], context: CallContext) -> Outcome[LearnerOutputs]:
        """Run the call's operation. Raises ``InvalidInput``, ``WrongPolicy``, ``MissingBlob``, ``UpdateFailed``."""
        match call.inputs.operation:
            case InitInputs() as inputs:
                return await self._publish_initial(call, inputs, context)
            case UpdateInputs() as inputs:
                return await self._update(call, inputs, context)
            case AdvantagesInputs():
                raise InvalidInput("operation: this learner computes advantages within the update")

    async def _publish_initial(
        self, call: StageCall[LearnerInputs], inputs: InitInputs, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        path = checked_model(inputs.model, self._settings)
        weights = await self._trained.initial_weights(path, context, threads=call.threads)
        with context.watch.measure("store"):
            ref = await context.blobs.put(call.key.run, call.key.step, "policy", weights)
        policy = PolicyRef(version=0, model=inputs.model, weights=ref)
        return Outcome(outputs=LearnerOutputs(policy=policy, state=None, num_updates=0))

    async def _update(
        self, call: StageCall[LearnerInputs], inputs: UpdateInputs, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        if call.policy is None:
            raise InvalidInput("policy: an update needs the policy version that made the rollouts")
        path = checked_model(call.policy.model, self._settings)
        with context.watch.measure("load"):
            rows = await read_batch(call.key.batch, inputs.parts, inputs.num_samples, call.policy, context)
        config = LearnerConfig.from_contract(inputs.optim, inputs.algorithm, inputs.temperature)
        trained = await self._trained.take(call.policy, path, inputs.state, config, context, threads=call.threads)

        def compute() -> UpdateResult:
            use_threads(call.threads)
            return update_policy(
                trained.model,
                trained.optimizer,
                rows,
                config,
                step=call.key.step,
                should_stop=context.stop.is_set,
            )

        with context.watch.measure("compute"):
            result = await context.compute(compute)
        context.stop.raise_if_set()
        policy, state = await self._trained.publish(
            trained, call.policy.version + 1, call.policy.model, call.key.run, call.key.step + 1, context
        )
        return Outcome(
            outputs=LearnerOutputs(policy=policy, state=state, num_updates=result.num_updates),
            metrics=result.metrics,
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""
