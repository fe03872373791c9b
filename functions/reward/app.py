"""The reward stage: COMPLETIONS → SCORES."""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from functions.reward.outcome import CompletionText
from functions.reward.scorer import ModelMeans, Scorer, Scoring
from functions.reward.settings import V2Settings
from functions.reward.v2 import served_rewards, v2_protocol
from functions.reward.weighted_sum import flat_rows, summarise
from shared.codec.completions import DamagedCompletion, decode_completion
from shared.contracts.call import StageCall
from shared.contracts.completion import SampleId
from shared.contracts.errors import MissingBlob, RewardTimeout
from shared.contracts.prompt import Prompt
from shared.contracts.reward import ModelReward, RewardInputs, RewardOutputs, Scores
from shared.contracts.stage import Stage
from shared.modeling.tokenizer import Tokenizer
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.prompts import read_prompts
from shared.service.replica import Replica
from shared.service.settings import FunctionSettings, process_environment
from shared.service.side_protocol import SideProtocol


class RewardHandler:
    """Scores completions by rules, functions, models and remote rewards."""

    stage: ClassVar[Stage] = Stage.REWARD
    exclusive: ClassVar[bool] = False
    inputs = RewardInputs
    outputs = RewardOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._v2 = V2Settings.from_environment(process_environment())
        self._scorer = Scorer(
            roots=settings.model_roots,
            environ=process_environment(),
            allowed_hosts=settings.reward_allowed_hosts,
            secrets_folder=settings.secrets_folder,
        )

    async def handle(self, call: StageCall[RewardInputs], context: CallContext) -> Outcome[RewardOutputs]:
        """Score the rows.

        Raises ``InvalidInput``, ``MissingBlob``, ``RewardFailed``, ``RewardTimeout`` (also when the deadline comes
        first: a part of the scores is of no use), ``Cancelled``.
        """
        inputs, watch = call.inputs, context.watch
        model = checked_model(inputs.model, self._settings)
        prompts = await read_prompts(inputs.prompts, context)
        ids = [SampleId(row, sample) for row in inputs.row_uids for sample in range(inputs.num_samples)]
        with watch.measure("load"):
            stored = await context.store.work.samples(call.key.batch, ids)
        with watch.measure("compute"):
            completions = await context.compute(read_completions, model, stored)
            scoring = await self._score(prompts, completions, call, context)
        scores = scoring.scores
        with watch.measure("store"):
            body = scores.model_dump_json().encode()
            ref = await context.blobs.put(call.key.run, call.key.step, f"{call.key.purpose}-scores", body)
        rewards = [entry.reward for entry in scores.scores]
        return Outcome(
            outputs=RewardOutputs(
                scores=ref,
                num_scored=len(rewards),
                num_dropped_groups=len(scores.dropped_rows),
                dropped_rows=scores.dropped_rows,
                num_failed_groups=len(scoring.failed_rows),
                mean_reward=sum(rewards) / max(1, len(rewards)),
                parts=summarise(scores.scores),
                flat_rows=flat_rows(scores.scores, scoring.parts),
            )
        )

    async def _score(
        self,
        prompts: tuple[Prompt, ...],
        completions: list[CompletionText],
        call: StageCall[RewardInputs],
        context: CallContext,
    ) -> Scoring:
        models = ModelMeans(check=self._checked_model, compute=context.compute, threads=call.threads)
        deadline = asyncio.timeout(context.remaining_s())
        try:
            async with context.stop.interrupting(), deadline:
                return await self._scorer.score(prompts, completions, call.inputs, models=models)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise RewardTimeout(
                f"scoring {len(completions)} completions took longer than one call may: "
                "score fewer in a call, or make the reward function faster"
            ) from error

    def side_protocol(self, replica: Replica) -> SideProtocol:
        """The Open Inference Protocol V2: texts in, scores out, nothing stored."""
        models = ModelMeans(check=self._checked_model, compute=replica.compute, threads=self._v2.threads)

        async def score(prompts: list[Prompt], completions: list[CompletionText], inputs: RewardInputs) -> Scores:
            return (await self._scorer.score(prompts, completions, inputs, models=models)).scores

        return v2_protocol(served_rewards(self._v2), score)

    async def close(self) -> None:
        """End the child processes."""
        await self._scorer.close()

    def _checked_model(self, reward: ModelReward) -> str:
        return checked_model(reward.model, self._settings)


def read_completions(model: str, stored: Mapping[SampleId, bytes]) -> list[CompletionText]:
    """Completions as text. Raises ``MissingBlob`` for one that is damaged."""
    tokenizer = load_tokenizer(model)
    try:
        token_ids = {id: decode_completion(data).token_ids.tolist() for id, data in stored.items()}
    except DamagedCompletion as error:
        raise MissingBlob(f"a completion is damaged: {error}") from error
    return [CompletionText(id, tokenizer.decode(tokens), tokens) for id, tokens in token_ids.items()]


@lru_cache(maxsize=4)
def load_tokenizer(model: str) -> Tokenizer:
    """The model's tokenizer; reading it again for each call would cost more than the scoring."""
    return Tokenizer.load(model)
