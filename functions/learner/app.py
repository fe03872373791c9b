"""The learner stage: COMPLETIONS + SCORES → POLICY VERSION k+1."""

from typing import ClassVar

from functions.learner.batch import read_batch
from functions.learner.credit import needs_old_logprobs
from functions.learner.credit_config import CreditConfig
from functions.learner.credit_pass import CreditPass, credit_pass
from functions.learner.update_call import InThisProcess, UpdateCalls
from shared.codec.token_values import encode_token_values
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.learner import AdvantagesInputs, InitInputs, LearnerInputs, LearnerOutputs, UpdateInputs
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from shared.modeling.loading import load_model, new_model
from shared.modeling.threads import use_threads
from shared.modeling.weights import state_dict_to_blob
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings
from shared.training.model_in_training import ModelInTraining


class LearnerHandler:
    """Publishes version 0, says advantages, and makes version k+1 from version k and its rollouts."""

    stage: ClassVar[Stage] = Stage.LEARNER
    exclusive: ClassVar[bool] = True
    inputs = LearnerInputs
    outputs = LearnerOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._trained = ModelInTraining(new_model, name="policy")
        self._updates = UpdateCalls(self._trained, InThisProcess())

    async def handle(self, call: StageCall[LearnerInputs], context: CallContext) -> Outcome[LearnerOutputs]:
        """Run the call's operation. Raises ``InvalidInput``, ``WrongPolicy``, ``MissingBlob``, ``UpdateFailed``."""
        match call.inputs.operation:
            case InitInputs() as inputs:
                return await self._publish_initial(call, inputs, context)
            case AdvantagesInputs() as inputs:
                return await self._advantages(call, inputs, _policy_of(call), context)
            case UpdateInputs():
                policy = _policy_of(call)
                return await self._updates.answer(call, policy, checked_model(policy.model, self._settings), context)

    async def _publish_initial(
        self, call: StageCall[LearnerInputs], inputs: InitInputs, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        path = checked_model(inputs.model, self._settings)

        def load() -> bytes:
            use_threads(call.threads)
            return state_dict_to_blob(load_model(path))

        with context.watch.measure("load"):
            weights = await context.compute(load)
        with context.watch.measure("store"):
            ref = await context.blobs.put(call.key.run, call.key.step, "policy", weights)
        policy = PolicyRef(version=0, model=inputs.model, weights=ref)
        return Outcome(outputs=LearnerOutputs(policy=policy, state=None, num_updates=0))

    async def _advantages(
        self, call: StageCall[LearnerInputs], inputs: AdvantagesInputs, policy: PolicyRef, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        path = checked_model(policy.model, self._settings)
        with context.watch.measure("load"):
            rows = await read_batch(call.key.batch, inputs, policy, context)
        config = CreditConfig.from_contract(inputs.algorithm, inputs.kl_coef)
        model = None
        if needs_old_logprobs(config):
            model = await self._trained.frozen(policy, path, context, threads=call.threads)

        def compute() -> CreditPass:
            use_threads(call.threads)
            return credit_pass(
                model, rows, config, temperature=inputs.temperature, max_token_len=inputs.algorithm.max_token_len
            )

        with context.watch.measure("compute"):
            result = await context.compute(compute)
        context.stop.raise_if_set()
        with context.watch.measure("store"):
            blob = encode_token_values(result.vectors())
            ref = await context.blobs.put(call.key.run, call.key.step, "advantages", blob)
        return Outcome(
            outputs=LearnerOutputs(advantages=ref, kl_coef=result.credit.next_kl_coef),
            metrics=result.credit.metrics,
            policy_version=policy.version,
            weights_digest=policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""


def _policy_of(call: StageCall[LearnerInputs]) -> PolicyRef:
    if call.policy is None:
        raise InvalidInput("policy: the version that made the rollouts is needed")
    return call.policy
