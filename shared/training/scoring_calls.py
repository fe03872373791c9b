"""Answer a call for a number per token: read the batch and the model, score as far as the deadline allows, store.

call ─▶ rows, weights ─▶ scores ─┬─▶ of all completions: token values, `done`
        (and what is scored)     └─▶ of some: these, `continue`; the next call scores the rest
"""

from dataclasses import dataclass
from typing import Any, Literal

from shared.codec.token_values import TokenValues, encode_token_values
from shared.contracts.call import CallKey, StageCall
from shared.contracts.critic import ValuesInputs
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.reference import ReferenceInputs
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext
from shared.training.errors import ScoringTooLong
from shared.training.model_in_training import ModelInTraining
from shared.training.partial_scores import PartialScores, read_finished, read_partial
from shared.training.scoring import ReadOutputs, score_trained_tokens
from shared.training.stored_rows import read_completions, read_prompts, sequence_row
from shared.training.time_budget import Pace, TimeBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a call came to: one of the two."""

    scores: BlobRef | None = None
    """Token values of all completions."""
    partial: BlobRef | None = None
    """Where to go on."""

    @property
    def status(self) -> Literal["done", "continue"]:
        """The reply's."""
        return "continue" if self.scores is None else "done"


class ScoringCalls:
    """Answers such calls, one at a time."""

    def __init__(self, models: ModelInTraining, *, vector: str, blob_kind: str, stage: str, setting: str) -> None:
        """`vector` names the numbers in their blob; `setting` the run's key that bounds the tokens of one pass."""
        self._models = models
        self._vector = vector
        self._blob_kind = blob_kind
        self._stage = stage
        self._setting = setting
        self._pace = Pace()

    async def answer(
        self,
        call: StageCall[Any],
        inputs: ValuesInputs | ReferenceInputs,
        policy: PolicyRef,
        path: str,
        read: ReadOutputs,
        context: CallContext,
    ) -> Scored:
        """Score the call's rows, or go as far as the deadline allows.

        Raises ``InvalidInput``, ``MissingBlob``, ``Cancelled`` and the model's own errors.
        """
        with context.watch.measure("load"):
            prompts = await read_prompts(inputs.prompts, inputs.row_uids, context)
            completions = await read_completions(call.key.batch, inputs.row_uids, inputs.num_samples, context)
            partial = await read_partial(inputs.partial, policy.digest, context)
            finished = await read_finished(partial, self._vector, completions.values(), context)
        rows = [sequence_row(prompts[id.row_uid], completion) for id, completion in completions.items()]
        model = await self._models.frozen(policy, path, context, threads=call.threads)
        budget = TimeBudget(self._pace, context.remaining_s, context.stop.is_set)

        def compute() -> TokenValues:
            use_threads(call.threads)
            return score_trained_tokens(
                model,
                rows,
                read,
                max_token_len=inputs.max_token_len,
                compute=inputs.compute,
                budget=budget,
                finished=finished,
            )

        with context.watch.measure("compute"):
            scores = await context.compute(compute)
        context.stop.raise_if_set()
        with context.watch.measure("store"), self._pace.storing():
            if len(scores) == len(rows):
                return Scored(scores=await self._store(call.key, scores, context))
            if len(scores) > len(finished):
                stored = await self._store(call.key, scores, context)
                partial = partial.model_copy(update={"scores": stored, "num_idle": 0})
            else:
                partial = self._idle(partial, inputs.max_token_len)
            return Scored(partial=await self._put(call.key, "partial", partial.model_dump_json().encode(), context))

    def _idle(self, partial: PartialScores, max_token_len: int) -> PartialScores:
        """After a call that had no time for a single micro-batch. Raises ``ScoringTooLong``."""
        num_idle = partial.num_idle + 1
        self._pace.refuse_endless(
            num_idle, "scoring", max_token_len, ScoringTooLong, setting=self._setting, stage=self._stage
        )
        return partial.model_copy(update={"num_idle": num_idle})

    async def _store(self, key: CallKey, scores: TokenValues, context: CallContext) -> BlobRef:
        return await self._put(key, self._blob_kind, encode_token_values({self._vector: scores}), context)

    async def _put(self, key: CallKey, kind: str, data: bytes, context: CallContext) -> BlobRef:
        return await context.blobs.put(key.run, key.step, f"{key.purpose}-{kind}", data)
