"""Answer an update call: read the batch and the model, update as far as the deadline allows, store, reply.

    call ─▶ rows, weights, optimizer state ─▶ update ─┬─▶ complete: version k+1 and its state, `done`
            (and where an earlier call stopped)       └─▶ cut: weights, state, gradient so far, `continue`

Whatever a reply names is stored before it. A learner that is killed at any time loses nothing but its own work, and a
released one nothing at all.
"""

from functions.learner.batch import read_batch
from functions.learner.call_config import config_of, update_inputs
from functions.learner.config import LearnerConfig
from functions.learner.stored_plan import read_plan, write_plan
from functions.learner.update import UpdateResult
from functions.learner.updater import Updater
from shared.contracts.call import StageCall
from shared.contracts.learner import LearnerInputs, LearnerOutputs
from shared.contracts.policy import PolicyRef
from shared.service.handler import CallContext, Outcome
from shared.training.errors import UpdateTooLong
from shared.training.model_in_training import ModelInTraining, Trained, weights_key
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

    def __init__(self, trained: ModelInTraining, updater: Updater) -> None:
        self._trained = trained
        self._updater = updater
        self._pace = Pace()

    async def answer(
        self, call: StageCall[LearnerInputs], policy: PolicyRef, path: str, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        """Make version k+1, or go as far as the deadline allows.

        Raises ``InvalidInput``, ``MissingBlob``, ``WrongPolicy`` and ``UpdateFailed``.
        """
        inputs, config = update_inputs(call), config_of(call)
        await self._updater.start()
        with context.watch.measure("load"):
            rows = await read_batch(call.key.batch, inputs, policy, context)
            segment = await read_segment(inputs.progress, policy, inputs.state, context)
            progress = await read_progress(segment, context)
            if progress is None and inputs.packing_plan is not None:
                progress = UpdateProgress(packing_plan=await read_plan(inputs.packing_plan, context))
        trained = await self._trained.take(segment.policy, path, segment.state, config, context, threads=call.threads)
        budget = TimeBudget(self._pace, context.remaining_s, context.stop.is_set)
        with context.watch.measure("compute"):
            result = await self._updater.update(trained, path, rows, call, budget, progress, context)
        context.stop.raise_if_set()
        with self._pace.storing():
            if result.progress is None:
                outputs = await self._complete(call, policy, trained, result, context)
            else:
                num_updates = 0 if progress is None else progress.next_update
                if result.num_updates == num_updates:
                    self._trained.put_back(trained)
                    self._updater.published(trained.weights_key, trained.state_digest)
                else:
                    segment = await store_weights(self._trained, trained, call.key, segment, policy, context)
                    key = weights_key(segment.policy, segment.state)
                    self._updater.published(key, segment.state.sha256 if segment.state else None)
                outputs = await self._cut(call, segment, config, result, result.progress, context)
        return Outcome(
            outputs=outputs,
            status="done" if result.progress is None else "continue",
            metrics=result.metrics if result.progress is None else {},
            policy_version=policy.version,
            weights_digest=policy.digest,
        )

    async def _complete(
        self,
        call: StageCall[LearnerInputs],
        policy: PolicyRef,
        trained: Trained,
        result: UpdateResult,
        context: CallContext,
    ) -> LearnerOutputs:
        """Store the next version."""
        made, state = await self._trained.publish(
            trained, policy.version + 1, policy.model, call.key.run, call.key.step + 1, context
        )
        self._updater.published(weights_key(made, state), state.sha256)
        return LearnerOutputs(
            policy=made,
            state=state,
            num_updates=result.num_updates,
            kl_coef=result.next_kl_coef,
            packing_plan=await write_plan(call, result.packing_plan or [], context),
        )

    async def _cut(
        self,
        call: StageCall[LearnerInputs],
        segment: Segment,
        config: LearnerConfig,
        result: UpdateResult,
        progress: UpdateProgress,
        context: CallContext,
    ) -> LearnerOutputs:
        """Store how far the step is. Raises ``UpdateTooLong``."""
        segment = await store_progress(call.key, segment, progress, result.num_passes, context)
        self._pace.refuse_endless(
            segment.num_idle,
            "training",
            config.max_token_len,
            UpdateTooLong,
            setting="actor.ppo_max_token_len_per_gpu",
            stage="learner",
        )
        return LearnerOutputs(num_updates=result.num_updates, progress=await write_segment(call.key, segment, context))
