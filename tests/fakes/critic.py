"""A critic in virtual time: values are small numbers of the tokens, versions hashes of what they were fitted to."""

import asyncio
import hashlib
from typing import ClassVar

import numpy as np

from shared.codec.token_values import encode_token_values
from shared.contracts.call import StageCall
from shared.contracts.critic import CriticInit, CriticInputs, CriticOutputs, ValuesInputs, ValueUpdateInputs
from shared.contracts.errors import InvalidInput
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from shared.service.handler import CallContext, Outcome
from tests.fakes.batches import read_completions


class FakeCritic:
    """Says values of what is stored, and makes versions in turn."""

    stage: ClassVar[Stage] = Stage.CRITIC
    exclusive: ClassVar[bool] = True
    inputs = CriticInputs
    outputs = CriticOutputs

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s

    async def handle(self, call: StageCall[CriticInputs], context: CallContext) -> Outcome[CriticOutputs]:
        """Version 0, values, or the version after the call's."""
        await asyncio.sleep(self._duration_s)
        context.watch.compute_s += self._duration_s
        key, critic = call.key, call.policy
        match call.inputs.operation:
            case CriticInit(model=model):
                weights = await context.blobs.put(key.run, 0, "critic", b"critic")
                return Outcome(outputs=CriticOutputs(critic=PolicyRef(version=0, model=model, weights=weights)))
            case ValuesInputs() as inputs:
                completions = await read_completions(key.batch, inputs.row_uids, inputs.num_samples, context)
                values = {id: done.token_ids.astype(np.float32) / 100 for id, done in completions.items()}
                outputs = CriticOutputs(
                    values=await context.blobs.put(key.run, key.step, "values", encode_token_values({"values": values}))
                )
            case ValueUpdateInputs() as inputs:
                outputs = await self._update(call, inputs, context)
        if critic is None:
            raise InvalidInput("policy: the critic's own version is needed")
        return Outcome(outputs=outputs, policy_version=critic.version, weights_digest=critic.digest)

    async def _update(
        self, call: StageCall[CriticInputs], inputs: ValueUpdateInputs, context: CallContext
    ) -> CriticOutputs:
        before = call.policy
        if before is None:
            raise InvalidInput("policy: the critic's own version is needed")
        returns = await context.blobs.get(inputs.returns)
        state = b"" if inputs.state is None else await context.blobs.get(inputs.state)
        digest = hashlib.sha256(before.digest.encode() + returns + state).digest()
        version = before.version + 1
        return CriticOutputs(
            critic=PolicyRef(
                version=version,
                model=before.model,
                weights=await context.blobs.put(call.key.run, version, "critic", b"critic" + digest),
            ),
            state=await context.blobs.put(call.key.run, version, "critic-state", b"state" + digest),
            num_updates=1,
        )

    async def close(self) -> None:
        """Nothing is held."""
