"""A reward function of one's own: the ground truth in few words. Its image runs it as ``functions.main``."""

from typing import ClassVar

import uvicorn

from shared.codec.completions import decode_completion
from shared.contracts.call import StageCall
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.reward import RewardInputs, RewardOutputs, Score, Scores
from shared.contracts.stage import Stage
from shared.modeling.tokenizer import Tokenizer
from shared.observability.logging import log_to_stderr
from shared.observability.process_start import process_started_at
from shared.service.app import make_app
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.prompts import read_prompts
from shared.service.settings import FunctionSettings


def reward_of(completion: str, ground_truth: str) -> float:
    """1 for the ground truth alone, less the more stands around it; 0 without it. The only line to replace."""
    return len(ground_truth) / len(completion) if ground_truth in completion else 0.0


class OwnReward:
    """What the stage protocol needs of a stage. It keeps nothing between calls."""

    stage: ClassVar[Stage] = Stage.REWARD
    exclusive: ClassVar[bool] = False
    inputs = RewardInputs
    outputs = RewardOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings

    async def handle(self, call: StageCall[RewardInputs], context: CallContext) -> Outcome[RewardOutputs]:
        """Score the completions of the call's rows. Raises ``InvalidInput`` and ``MissingBlob``, which are 4xx."""
        asked = call.inputs
        tokenizer = await context.compute(Tokenizer.load, checked_model(asked.model, self._settings))
        truths = {prompt.row_uid: prompt.ground_truth for prompt in await read_prompts(asked.prompts, context)}
        ids = [SampleId(row, sample) for row in sorted(asked.row_uids) for sample in range(asked.num_samples)]
        stored = await context.store.work.samples(call.key.batch, ids)
        missing = [str(id) for id in ids if id not in stored or not truths.get(id.row_uid)]
        if missing:
            raise InvalidInput(f"these have no completion or no ground truth: {', '.join(missing[:5])}")
        texts = {id: tokenizer.decode(decode_completion(stored[id]).token_ids.tolist()) for id in ids}
        rewards = {id: reward_of(texts[id], str(truths[id.row_uid])) for id in ids}
        scores = Scores(
            scores=tuple(Score(row_uid=id.row_uid, sample=id.sample, reward=rewards[id]) for id in ids),
        )
        ref = await context.blobs.put(
            call.key.run, call.key.step, f"{call.key.purpose}-scores", scores.model_dump_json().encode()
        )
        mean = sum(rewards.values()) / len(rewards)
        return Outcome(outputs=RewardOutputs(scores=ref, num_scored=len(rewards), mean_reward=mean))

    async def close(self) -> None:
        """There is nothing to free."""


def main() -> None:
    """Serve until SIGTERM: health, information, token, keys and fences are the protocol's."""
    settings = FunctionSettings.from_environment()
    log_to_stderr(instance=settings.instance)
    app = make_app(settings, [OwnReward(settings)], started_at=process_started_at())
    uvicorn.run(app, host=settings.host, port=settings.port, log_config=None, access_log=False, timeout_keep_alive=120)


if __name__ == "__main__":
    main()
