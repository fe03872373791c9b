"""Answer an update call: read the batch and the model, update as far as the deadline allows, store, reply.

    call ─▶ rows, weights, optimizer state ─▶ update ─┬─▶ complete: version k+1 and its state, `done`
            (and where an earlier call stopped)       └─▶ cut: weights, state, gradient so far, `continue`

Whatever a reply names is stored before it.
"""

from functions.critic.batch import read_value_rows
from functions.critic.config import MICRO_BATCH_KEY, CriticConfig
from functions.critic.update import ValueUpdateResult, update_values
from shared.contracts.call import CallKey, StageCall
from shared.contracts.critic import CriticInputs, CriticOutputs, ValueUpdateInputs
from shared.contracts.policy import PolicyRef
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext, Outcome
from shared.training.errors import UpdateTooLong
from shared.training.model_in_training import ModelInTraining
from shared.training.progress import UpdateProgress
from shared.training.segments import (
    Segment,
    read_progress,
    read_segment,
    store_progress,
    store_weights,
    write_segment,
)
from shared.training.time_budget import Pace, TimeBudget


class UpdateCalls:
    """Answers update calls, one at a time."""

    def __init__(self, trained: ModelInTraining) -> None:
        self._trained = trained
        self._pace = Pace()

    async def answer(
        self,
        call: StageCall[CriticInputs],
        inputs: ValueUpdateInputs,
        critic: PolicyRef,
        path: str,
        context: CallContext,
    ) -> Outcome[CriticOutputs]:
        """Make version k+1, or go as far as the deadline allows.

        Raises ``InvalidInput``, ``MissingBlob``, ``UpdateFailed`` and ``Cancelled``.
        """
        key, config = call.key, CriticConfig.from_contract(inputs.optim, inputs.update)
        with context.watch.measure("load"):
            rows = await read_value_rows(key.batch, inputs, context)
            segment = await read_segment(inputs.progress, critic, inputs.state, context)
            progress = await read_progress(segment, context)
        trained = await self._trained.take(segment.policy, path, segment.state, config, context, threads=call.threads)
        budget = TimeBudget(self._pace, context.remaining_s, context.stop.is_set)

        def compute() -> ValueUpdateResult:
            use_threads(call.threads)
            return update_values(
                trained.model, trained.optimizer, rows, config, step=key.step, budget=budget, progress=progress
            )

        with context.watch.measure("compute"):
            result = await context.compute(compute)
        context.stop.raise_if_set()
        with self._pace.storing():
            if result.progress is None:
                made, state = await self._trained.publish(
                    trained, critic.version + 1, critic.model, key.run, key.step + 1, context
                )
                outputs = CriticOutputs(critic=made, state=state, num_updates=result.num_updates)
            else:
                if result.num_updates == (0 if progress is None else progress.next_update):
                    self._trained.put_back(trained)
                else:
                    segment = await store_weights(self._trained, trained, key, segment, critic, context)
                outputs = await self._cut(key, segment, config, result, result.progress, context)
        return Outcome(
            outputs=outputs,
            status="done" if result.progress is None else "continue",
            metrics=result.metrics,
            policy_version=critic.version,
            weights_digest=critic.digest,
        )

    async def _cut(
        self,
        key: CallKey,
        segment: Segment,
        config: CriticConfig,
        result: ValueUpdateResult,
        progress: UpdateProgress,
        context: CallContext,
    ) -> CriticOutputs:
        """Store how far the step is. Raises ``UpdateTooLong``."""
        segment = await store_progress(key, segment, progress, result.num_passes, context)
        self._pace.refuse_endless(
            segment.num_idle, "training", config.max_token_len, UpdateTooLong, setting=MICRO_BATCH_KEY, stage="critic"
        )
        return CriticOutputs(num_updates=result.num_updates, progress=await write_segment(key, segment, context))
