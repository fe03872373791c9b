"""A reward in virtual time: a hash of the tokens."""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from shared.contracts.call import StageCall
from shared.contracts.completion import Completion
from shared.contracts.reward import RewardInputs, RewardOutputs, Score, Scores
from shared.contracts.stage import Stage
from shared.service.handler import CallContext, Outcome
from tests.fakes.batches import read_completions


class FakeReward:
    """Scores each completion by a hash of its tokens."""

    stage: ClassVar[Stage] = Stage.REWARD
    exclusive: ClassVar[bool] = False
    inputs = RewardInputs
    outputs = RewardOutputs

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s
        self.given: list[Score] = []
        """All scores, in the order of their making."""
        self.reward_of: Callable[[Completion], float] = _parity

    async def handle(self, call: StageCall[RewardInputs], context: CallContext) -> Outcome[RewardOutputs]:
        """Score all completions of the rows; a missing one is an error."""
        completions = await read_completions(call.key.batch, call.inputs.row_uids, call.inputs.num_samples, context)
        await asyncio.sleep(self._duration_s)
        context.watch.compute_s += self._duration_s
        scores = tuple(
            Score(row_uid=id.row_uid, sample=id.sample, reward=self.reward_of(completion))
            for id, completion in sorted(completions.items())
        )
        self.given += scores
        rewards: dict[str, set[float]] = {}
        for score in scores:
            rewards.setdefault(score.row_uid, set()).add(score.reward)
        flat = tuple(row_uid for row_uid, values in rewards.items() if len(values) == 1)
        body = Scores(scores=scores).model_dump_json().encode()
        ref = await context.blobs.put(call.key.run, call.key.step, f"{call.key.purpose}-scores", body)
        mean = sum(score.reward for score in scores) / len(scores)
        return Outcome(outputs=RewardOutputs(scores=ref, num_scored=len(scores), mean_reward=mean, flat_rows=flat))

    async def close(self) -> None:
        """Nothing is held."""


def _parity(completion: Completion) -> float:
    return float(sum(completion.token_ids.tolist()) % 2)
