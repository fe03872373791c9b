"""A reference in virtual time: logprobs are small numbers of the tokens."""

import asyncio
from typing import ClassVar

import numpy as np

from shared.codec.token_values import encode_token_values
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.reference import ReferenceInputs, ReferenceOutputs
from shared.contracts.stage import Stage
from shared.service.handler import CallContext, Outcome
from tests.fakes.batches import read_completions


class FakeReference:
    """Scores what is stored."""

    stage: ClassVar[Stage] = Stage.REFERENCE
    exclusive: ClassVar[bool] = True
    inputs = ReferenceInputs
    outputs = ReferenceOutputs

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s

    async def handle(self, call: StageCall[ReferenceInputs], context: CallContext) -> Outcome[ReferenceOutputs]:
        """Logprobs of all completions of the rows; a missing one is an error."""
        if call.policy is None:
            raise InvalidInput("policy: the reference's weights are needed")
        key, inputs = call.key, call.inputs
        completions = await read_completions(key.batch, inputs.row_uids, inputs.num_samples, context)
        await asyncio.sleep(self._duration_s)
        context.watch.compute_s += self._duration_s
        logprobs = {id: -done.token_ids.astype(np.float32) / 10 for id, done in completions.items()}
        blob = encode_token_values({"reference_logprobs": logprobs})
        ref = await context.blobs.put(key.run, key.step, "reference", blob)
        return Outcome(
            outputs=ReferenceOutputs(logprobs=ref),
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held."""
