"""The rollout stage: PROMPTS → COMPLETIONS with their logprobs."""

from functools import lru_cache
from typing import ClassVar

from functions.rollout.policy_engine import PolicyEngine
from functions.rollout.profiling import profile
from functions.rollout.turns.turn_loop import TurnLoop
from functions.rollout.worker import RolloutWorker
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput, StageError
from shared.contracts.rollout import MultiTurn, Operation, RolloutInputs, RolloutOutputs
from shared.contracts.stage import Stage
from shared.modeling.tokenizer import Tokenizer
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.prompts import read_prompts
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
        """Work off the batch's items, or measure the replica's speed, by the key's operation.

        Raises ``InvalidInput``, ``MissingBlob``, ``PoisonedItem``, ``Cancelled``.
        """
        if call.policy is None:
            raise InvalidInput("policy: a rollout needs the policy version to sample from")
        model = checked_model(call.policy.model, self._settings)
        prompts = await read_prompts(call.inputs.prompts, context)
        engine = await self._policy_engine.ready(call.policy, model, context, threads=call.threads)
        try:
            if call.key.operation == Operation.PROFILE:
                return await profile(call.inputs, call.policy, prompts, engine, context, threads=call.threads)
            turn_loop = await self._turn_loop(call.inputs.multi_turn, model, context)
            by_row = {prompt.row_uid: prompt for prompt in prompts}
            worker = RolloutWorker(call, call.policy, by_row, engine, context, turn_loop, model=model)
            return await worker.run()
        except StageError:
            raise
        except BaseException:
            # Whatever went wrong there, an engine that was in use is not trusted any more.
            self._policy_engine.forget()
            raise

    async def _turn_loop(self, multi_turn: MultiTurn | None, model: str, context: CallContext) -> TurnLoop | None:
        if multi_turn is None:
            return None
        return TurnLoop.of(multi_turn, await context.compute(load_tokenizer, model))

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""


@lru_cache(maxsize=1)
def load_tokenizer(model: str) -> Tokenizer:
    """The model's tokenizer, kept for the next call."""
    return Tokenizer.load(model)
