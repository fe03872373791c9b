"""The learner stage: COMPLETIONS + SCORES → POLICY VERSION k+1."""

from functools import partial
from typing import ClassVar

from functions.learner.batch import read_batch
from functions.learner.credit import needs_old_logprobs
from functions.learner.credit_config import CreditConfig
from functions.learner.credit_pass import credit_pass
from functions.learner.determinism import use_deterministic_algorithms
from functions.learner.initial_policy import publish_initial
from functions.learner.ranks.size import num_ranks
from functions.learner.ranks.team import RankTeam
from functions.learner.update_call import UpdateCalls
from functions.learner.updater import InThisProcess, Updater
from shared.codec.token_values import encode_token_values
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.learner import AdvantagesInputs, InitInputs, LearnerInputs, LearnerOutputs, UpdateInputs
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from shared.modeling.device import compute_device
from shared.modeling.loading import new_model
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings, process_environment
from shared.training.model_in_training import ModelInTraining


class LearnerHandler:
    """Publishes version 0, says advantages, and makes version k+1 from version k and its rollouts."""

    stage: ClassVar[Stage] = Stage.LEARNER
    exclusive: ClassVar[bool] = True
    inputs = LearnerInputs
    outputs = LearnerOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._updater = make_updater(settings)
        self._trained = ModelInTraining(partial(new_model, device=self._updater.device), name="policy")
        self._updates = UpdateCalls(self._trained, self._updater)

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
        policy = await publish_initial(call, inputs, checked_model(inputs.model, self._settings), context)
        return Outcome(outputs=LearnerOutputs(policy=policy, state=None, num_updates=0))

    async def _advantages(
        self, call: StageCall[LearnerInputs], inputs: AdvantagesInputs, policy: PolicyRef, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        path = checked_model(policy.model, self._settings)
        with context.watch.measure("load"):
            rows = await read_batch(call.key.batch, inputs, policy, context)
        config = CreditConfig.from_contract(inputs.algorithm, inputs.kl_coef)
        old_logprobs = None
        if needs_old_logprobs(config):
            await self._updater.start()
            model = await self._trained.frozen(policy, path, context, threads=call.threads, state=inputs.state)
            with context.watch.measure("compute"):
                old_logprobs = await self._updater.logprobs(model, path, rows, call, policy, context)
        with context.watch.measure("compute"):
            result = await context.compute(credit_pass, rows, config, old_logprobs)
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
        """End the other ranks, if there are any."""
        await self._updater.close()


def make_updater(settings: FunctionSettings) -> Updater:
    """Several ranks make their updates together; one is enough of itself. Raises ``SettingsInvalid``."""
    environment = process_environment()
    if settings.deterministic:
        use_deterministic_algorithms(environment)
    size = num_ranks(settings)
    if size == 1:
        return InThisProcess(compute_device())
    return RankTeam(size, instance=settings.instance, environment=environment, deterministic=settings.deterministic)


def _policy_of(call: StageCall[LearnerInputs]) -> PolicyRef:
    if call.policy is None:
        raise InvalidInput("policy: the version that made the rollouts is needed")
    return call.policy
