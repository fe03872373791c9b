"""The reward stage: COMPLETIONS → SCORES."""

from functools import lru_cache
from typing import ClassVar

from functions.reward.outcome import CompletionText
from functions.reward.scorer import score
from functions.reward.user_function import UserFunctions
from shared.codec.completions import decode_completion
from shared.contracts.call import StageCall
from shared.contracts.completion import SampleId
from shared.contracts.prompt import PromptBatch
from shared.contracts.reward import RewardInputs, RewardOutputs
from shared.contracts.stage import Stage
from shared.modeling.tokenizer import Tokenizer
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings, process_environment


class RewardHandler:
    """Scores completions by a rule or a user's function."""

    stage: ClassVar[Stage] = Stage.REWARD
    exclusive: ClassVar[bool] = False
    inputs = RewardInputs
    outputs = RewardOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._user_functions = UserFunctions(roots=settings.model_roots, environ=process_environment())

    async def handle(self, call: StageCall[RewardInputs], context: CallContext) -> Outcome[RewardOutputs]:
        """Score the rows. Raises ``InvalidInput``, ``RewardFailed``, ``RewardTimeout``."""
        inputs, watch = call.inputs, context.watch
        with watch.measure("load"):
            tokenizer = load_tokenizer(checked_model(inputs.model, self._settings))
            batch = PromptBatch.model_validate_json(await context.blobs.get(inputs.prompts))
            ids = [SampleId(row, sample) for row in inputs.row_uids for sample in range(inputs.num_samples)]
            stored = await context.store.work.samples(call.key.batch, ids)
        with watch.measure("compute"):
            completions = [_completion_text(id, data, tokenizer) for id, data in stored.items()]
            scores = await score(batch.prompts, completions, inputs, user_functions=self._user_functions)
        with watch.measure("store"):
            body = scores.model_dump_json().encode()
            ref = await context.blobs.put(call.key.run, call.key.step, f"{call.key.purpose}-scores", body)
        rewards = [entry.reward for entry in scores.scores]
        return Outcome(
            outputs=RewardOutputs(
                scores=ref,
                num_scored=len(rewards),
                num_dropped_groups=len(scores.dropped_rows),
                mean_reward=sum(rewards) / max(1, len(rewards)),
            )
        )

    async def close(self) -> None:
        """End the child processes of user functions."""
        await self._user_functions.close()


def _completion_text(id: SampleId, data: bytes, tokenizer: Tokenizer) -> CompletionText:
    token_ids = decode_completion(data).token_ids.tolist()
    return CompletionText(id, tokenizer.decode(token_ids), token_ids)


@lru_cache(maxsize=4)
def load_tokenizer(model: str) -> Tokenizer:
    """The model's tokenizer; reading it again for each call would cost more than the scoring."""
    return Tokenizer.load(model)
