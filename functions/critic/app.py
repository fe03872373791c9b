"""The critic stage: COMPLETIONS → VALUES, and RETURNS → CRITIC VERSION k+1."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from functions.critic.config import MICRO_BATCH_KEY
from functions.critic.update_call import UpdateCalls
from functions.critic.value_model import initial_value_model, new_value_model
from shared.contracts.call import StageCall
from shared.contracts.critic import CriticInit, CriticInputs, CriticOutputs, ValuesInputs, ValueUpdateInputs
from shared.contracts.errors import InvalidInput
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from shared.modeling.threads import use_threads
from shared.modeling.weights import state_dict_to_blob
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings
from shared.training.model_in_training import ModelInTraining
from shared.training.rows import SequenceRow
from shared.training.scoring_calls import ScoringCalls


class CriticHandler:
    """Publishes version 0, says values, and makes version k+1 from version k and the returns of its values."""

    stage: ClassVar[Stage] = Stage.CRITIC
    exclusive: ClassVar[bool] = True
    inputs = CriticInputs
    outputs = CriticOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._trained = ModelInTraining(new_value_model, name="critic")
        self._values_calls = ScoringCalls(
            self._trained, vector="values", blob_kind="values", stage="critic", setting=MICRO_BATCH_KEY
        )
        self._updates = UpdateCalls(self._trained)

    async def handle(self, call: StageCall[CriticInputs], context: CallContext) -> Outcome[CriticOutputs]:
        """Run the call's operation. Raises ``InvalidInput``, ``MissingBlob``, ``UpdateFailed``, ``Cancelled``."""
        match call.inputs.operation:
            case CriticInit() as inputs:
                return await self._publish_initial(call, inputs, context)
            case ValuesInputs() as inputs:
                return await self._values(call, inputs, _critic_of(call), context)
            case ValueUpdateInputs() as inputs:
                critic = _critic_of(call)
                return await self._updates.answer(
                    call, inputs, critic, checked_model(critic.model, self._settings), context
                )

    async def _publish_initial(
        self, call: StageCall[CriticInputs], inputs: CriticInit, context: CallContext
    ) -> Outcome[CriticOutputs]:
        path = checked_model(inputs.model, self._settings)

        def load() -> bytes:
            use_threads(call.threads)
            return state_dict_to_blob(initial_value_model(path))

        with context.watch.measure("load"):
            weights = await context.compute(load)
        with context.watch.measure("store"):
            ref = await context.blobs.put(call.key.run, call.key.step, "critic", weights)
        return Outcome(outputs=CriticOutputs(critic=PolicyRef(version=0, model=inputs.model, weights=ref)))

    async def _values(
        self, call: StageCall[CriticInputs], inputs: ValuesInputs, critic: PolicyRef, context: CallContext
    ) -> Outcome[CriticOutputs]:
        path = checked_model(critic.model, self._settings)
        scored = await self._values_calls.answer(call, inputs, critic, path, _first_output, context)
        return Outcome(
            outputs=CriticOutputs(values=scored.scores, partial=scored.partial),
            status=scored.status,
            policy_version=critic.version,
            weights_digest=critic.digest,
        )

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""


def _critic_of(call: StageCall[CriticInputs]) -> PolicyRef:
    if call.policy is None:
        raise InvalidInput("policy: the critic's own version is needed")
    return call.policy


def _first_output(outputs: Tensor, rows: Sequence[SequenceRow]) -> Tensor:
    return outputs[:, 0]
