"""The reference stage: COMPLETIONS → REFERENCE LOGPROBS."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from transformers import PreTrainedModel

from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.reference import ReferenceInputs, ReferenceOutputs
from shared.contracts.stage import Stage
from shared.modeling.device import compute_device
from shared.modeling.loading import new_model
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings
from shared.training.forward import trained_token_logprobs
from shared.training.model_in_training import ModelInTraining
from shared.training.rows import SequenceRow
from shared.training.scoring_calls import ScoringCalls


class ReferenceHandler:
    """Scores completions under the weights that a call names, which are never trained."""

    stage: ClassVar[Stage] = Stage.REFERENCE
    exclusive: ClassVar[bool] = True
    inputs = ReferenceInputs
    outputs = ReferenceOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._calls = ScoringCalls(
            ModelInTraining(_new_model, name="reference"),
            vector="reference_logprobs",
            blob_kind="reference",
            stage="reference",
            setting="reference.log_prob_max_token_len_per_gpu",
        )

    async def handle(self, call: StageCall[ReferenceInputs], context: CallContext) -> Outcome[ReferenceOutputs]:
        """Score the call's rows, as far as its deadline allows.

        Raises ``InvalidInput``, ``MissingBlob``, ``Cancelled`` and the model's own errors.
        """
        inputs = call.inputs
        if call.policy is None:
            raise InvalidInput("policy: reference logprobs need the weights to take them under")
        path = checked_model(call.policy.model, self._settings)

        def logprobs_of(logits: Tensor, part: Sequence[SequenceRow]) -> Tensor:
            return trained_token_logprobs(logits, part, inputs.temperature)

        scored = await self._calls.answer(call, inputs, call.policy, path, logprobs_of, context)
        return Outcome(
            outputs=ReferenceOutputs(logprobs=scored.scores, partial=scored.partial),
            status=scored.status,
            metrics={"reference/num_completions": float(len(inputs.row_uids) * inputs.num_samples)},
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""


def _new_model(path: str) -> PreTrainedModel:
    """The architecture alone, where the replica computes."""
    return new_model(path, device=compute_device())
