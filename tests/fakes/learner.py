"""A learner in virtual time: the next weights are a hash of the weights before, the completions and their scores."""

import asyncio
import hashlib
from typing import ClassVar

import numpy as np

from shared.codec.token_values import encode_token_values
from shared.contracts.call import CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.learner import AdvantagesInputs, InitInputs, LearnerInputs, LearnerOutputs, UpdateInputs
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.stage import Stage
from shared.contracts.training_pass import Precision
from shared.service.handler import CallContext, Outcome
from tests.fakes.batches import read_completions


class FakeLearner:
    """Makes weights that are a hash of the weights before, the completions and their scores."""

    stage: ClassVar[Stage] = Stage.LEARNER
    exclusive: ClassVar[bool] = True
    inputs = LearnerInputs
    outputs = LearnerOutputs

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s
        self.trained: dict[int, dict[SampleId, tuple[int, ...]]] = {}
        """Step → the completions that it was trained on."""

    async def handle(self, call: StageCall[LearnerInputs], context: CallContext) -> Outcome[LearnerOutputs]:
        """Publish version 0, or the version after the call's."""
        await asyncio.sleep(self._duration_s)
        context.watch.compute_s += self._duration_s
        match call.inputs.operation:
            case InitInputs(model=model, dtype=dtype):
                policy, state = await self._publish(call.key, model, 0, b"init", context, dtype)
                return Outcome(outputs=LearnerOutputs(policy=policy, state=None, num_updates=0))
            case UpdateInputs() as update:
                policy, state = await self._update(call, update, context)
            case AdvantagesInputs() as inputs:
                return await self._advantages(call, inputs, context)
        plan = await context.blobs.put(call.key.run, policy.version, "packing-plan", b"[[[0]]]")
        return Outcome(
            outputs=LearnerOutputs(policy=policy, state=state, num_updates=1, packing_plan=plan),
            metrics={"actor/loss": 1.0},
            policy_version=policy.version - 1,
            weights_digest=call.policy.digest if call.policy else None,
        )

    async def _update(
        self, call: StageCall[LearnerInputs], update: UpdateInputs, context: CallContext
    ) -> tuple[PolicyRef, BlobRef]:
        before = call.policy
        assert before is not None
        completions = await self._completions(call.key, update, context)
        for id, completion in completions.items():
            if completion.weights_digest != before.digest:
                raise InvalidInput(f"{id} was sampled with {completion.weights_digest}, not with {before.digest}")
        tokens = {id: tuple(completion.token_ids.tolist()) for id, completion in completions.items()}
        known = self.trained.setdefault(call.key.step, tokens)
        assert known == tokens, f"step {call.key.step} was trained on other completions before"
        scores = await self._judgements(update, context)
        state = await context.blobs.get(update.state) if update.state is not None else b""
        made_of = f"{before.digest} {sorted(tokens.items())} {hashlib.sha256(scores + state).hexdigest()}".encode()
        return await self._publish(call.key, before.model, before.version + 1, made_of, context, before.dtype)

    async def _advantages(
        self, call: StageCall[LearnerInputs], inputs: AdvantagesInputs, context: CallContext
    ) -> Outcome[LearnerOutputs]:
        completions = await self._completions(call.key, inputs, context)
        value = hashlib.sha256(await self._judgements(inputs, context)).digest()[0] / 255
        each = {id: np.full(len(done.token_ids), value, np.float32) for id, done in completions.items()}
        blob = encode_token_values({"advantages": each, "returns": each})
        ref = await context.blobs.put(call.key.run, call.key.step, "advantages", blob)
        return Outcome(
            outputs=LearnerOutputs(advantages=ref),
            policy_version=call.policy.version if call.policy else None,
            weights_digest=call.policy.digest if call.policy else None,
        )

    async def _completions(
        self, key: CallKey, inputs: UpdateInputs | AdvantagesInputs, context: CallContext
    ) -> dict[SampleId, Completion]:
        completions: dict[SampleId, Completion] = {}
        for part in inputs.parts:
            batch = key.batch.model_copy(update={"round": part.round})
            completions |= await read_completions(batch, part.row_uids, inputs.num_samples, context)
        return completions

    async def _judgements(self, inputs: UpdateInputs | AdvantagesInputs, context: CallContext) -> bytes:
        """Everything that was said of the batch."""
        refs = [ref for part in inputs.parts for ref in (*part.scores, *part.reference_logprobs, *part.values)]
        if isinstance(inputs, UpdateInputs) and inputs.advantages is not None:
            refs.append(inputs.advantages)
        return b"".join([await context.blobs.get(ref) for ref in refs])

    async def _publish(
        self, key: CallKey, model: ModelRef, version: int, made_of: bytes, context: CallContext, dtype: Precision
    ) -> tuple[PolicyRef, BlobRef]:
        digest = hashlib.sha256(made_of).digest()
        weights = await context.blobs.put(key.run, version, "weights", b"weights" + digest)
        state = await context.blobs.put(key.run, version, "state", b"state" + digest)
        return PolicyRef(version=version, model=model, weights=weights, dtype=dtype), state

    async def close(self) -> None:
        """Nothing is held."""
