"""The reference stage: COMPLETIONS → REFERENCE LOGPROBS."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from shared.codec.token_values import encode_token_values
from shared.contracts.call import StageCall
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.reference import ReferenceInputs, ReferenceOutputs
from shared.contracts.stage import Stage
from shared.modeling.device import compute_device
from shared.modeling.loading import new_model
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings
from shared.training.forward import trained_token_logprobs
from shared.training.model_in_training import ModelInTraining
from shared.training.rows import SequenceRow
from shared.training.scoring import score_trained_tokens
from shared.training.stored_rows import read_completions, read_prompts, sequence_row


class ReferenceHandler:
    """Scores completions under the weights that a call names, which are never trained."""

    stage: ClassVar[Stage] = Stage.REFERENCE
    exclusive: ClassVar[bool] = True
    inputs = ReferenceInputs
    outputs = ReferenceOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._model = ModelInTraining(_new_model, name="reference")

    async def handle(self, call: StageCall[ReferenceInputs], context: CallContext) -> Outcome[ReferenceOutputs]:
        """Score the call's rows. Raises ``InvalidInput``, ``MissingBlob`` and the model's own errors."""
        inputs = call.inputs
        if call.policy is None:
            raise InvalidInput("policy: reference logprobs need the weights to take them under")
        path = checked_model(call.policy.model, self._settings)
        with context.watch.measure("load"):
            prompts = await read_prompts(inputs.prompts, inputs.row_uids, context)
            completions = await read_completions(call.key.batch, inputs.row_uids, inputs.num_samples, context)
        rows = [sequence_row(prompts[id.row_uid], completion) for id, completion in completions.items()]
        model = await self._model.frozen(call.policy, path, context, threads=call.threads)

        def logprobs_of(logits: Tensor, part: Sequence[SequenceRow]) -> Tensor:
            return trained_token_logprobs(logits, part, inputs.temperature)

        def compute() -> dict[SampleId, NDArray[np.float32]]:
            use_threads(call.threads)
            return score_trained_tokens(
                model, rows, logprobs_of, max_token_len=inputs.max_token_len, compute=inputs.compute
            )

        with context.watch.measure("compute"):
            logprobs = await context.compute(compute)
        context.stop.raise_if_set()
        blob = encode_token_values({"reference_logprobs": logprobs})
        with context.watch.measure("store"):
            ref = await context.blobs.put(call.key.run, call.key.step, f"{call.key.purpose}-reference", blob)
        return Outcome(
            outputs=ReferenceOutputs(logprobs=ref),
            metrics={"reference/num_completions": float(len(rows))},
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""


def _new_model(path: str) -> PreTrainedModel:
    """The architecture alone, where the replica computes."""
    return new_model(path, device=compute_device())
