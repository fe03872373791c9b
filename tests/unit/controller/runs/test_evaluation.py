"""Evaluating a version on the held-out rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.platforms.simulated.platform import SimulatedPlatform
from controller.runs.errors import ContractBroken
from controller.runs.evaluation import Evaluation, evaluate
from controller.runs.manifest import Manifest
from controller.scheduling import sharding
from shared.contracts.call import BatchKey
from shared.contracts.reward import Scores
from shared.contracts.stage import Purpose, Stage
from tests.fakes.sampled import POLICY
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, SPECS, World, make_world

HEAD = Manifest(step=5, data_cursor=0, policy=POLICY, state=None, run_seed=1)


async def run_evaluation(world: World) -> Evaluation:
    return await evaluate(await world.context(), HEAD)


@in_virtual_time
async def test_accuracy_is_the_mean_over_all_samples_of_all_rows(tmp_path: Path) -> None:
    world = await make_world(
        tmp_path,
        num_heldout=7,
        data__val_batch_size=3,
        rollout__val_kwargs__n=4,
        rollout__val_kwargs__temperature=0.7,
    )
    found = await run_evaluation(world)
    rewards = [score.reward for score in world.stages.reward.given]
    assert len(rewards) == 28
    assert (found.num_rows, found.num_samples) == (7, 4)
    assert found.accuracy == pytest.approx(sum(rewards) / 28)
    assert found.metrics["val-core/reward/mean@4"] == found.accuracy
    assert found.metrics["val-core/unknown/reward/mean@4"] == found.accuracy
    assert found.accuracy <= found.metrics["val-core/reward/pass@2"] <= found.metrics["val-core/reward/pass@4"]
    assert found.metrics["timing_s/testing"] > 0


@in_virtual_time
async def test_seven_rows_on_two_shards_are_seven_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "COMPLETIONS_PER_CALL", 8)
    world = await make_world(
        tmp_path, num_heldout=7, rollout__num_actors=2, rollout__val_kwargs__n=2, rollout__val_kwargs__temperature=1.0
    )
    found = await run_evaluation(world)
    for stage in (Stage.ROLLOUT, Stage.REWARD):
        assert {call.key.shard for call in world.stages.seen(stage, Purpose.EVAL)} == {0, 1}
    given = [(score.row_uid, score.sample) for score in world.stages.reward.given]
    assert sorted(given) == [(f"val-{number:06d}", sample) for number in range(7) for sample in range(2)]
    assert (found.num_rows, found.num_dropped_rows) == (7, 0)


class Repeating:
    """A reward that gives its first score again, in place of some of the next ones."""

    def __init__(self, reward: Any, num_replaced: int = 1) -> None:
        self._reward = reward
        self._num_replaced = num_replaced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reward, name)

    async def handle(self, call: Any, context: Any) -> Any:
        outcome = await self._reward.handle(call, context)
        scores = Scores.model_validate_json(await context.blobs.get(outcome.outputs.scores)).scores
        body = Scores(scores=(scores[0], scores[0], *scores[1 + self._num_replaced :])).model_dump_json().encode()
        ref = await context.blobs.put(call.key.run, call.key.step, "eval-scores", body)
        return replace(outcome, outputs=outcome.outputs.model_copy(update={"scores": ref}))


@pytest.mark.parametrize(
    ("num_replaced", "words"),
    [(1, "4 scores of 3 rows where 1 of each of 4 rows"), (0, "5 scores of 4 rows where 1 of each of 4 rows")],
)
@in_virtual_time
async def test_a_row_that_is_scored_twice_is_no_result(tmp_path: Path, num_replaced: int, words: str) -> None:
    world = await make_world(tmp_path)
    world.stages.reward = Repeating(world.stages.reward, num_replaced)
    world.platform = SimulatedPlatform(SPECS, world.stages.functions())
    with pytest.raises(ContractBroken, match=words):
        await run_evaluation(world)


class Dropping(Repeating):
    """A reward that gives up on the first row."""

    async def handle(self, call: Any, context: Any) -> Any:
        outcome = await self._reward.handle(call, context)
        scores = Scores.model_validate_json(await context.blobs.get(outcome.outputs.scores)).scores
        lost = scores[0].row_uid
        body = Scores(scores=tuple(s for s in scores if s.row_uid != lost), dropped_rows=(lost,))
        ref = await context.blobs.put(call.key.run, call.key.step, "eval-scores", body.model_dump_json().encode())
        return replace(outcome, outputs=outcome.outputs.model_copy(update={"scores": ref}))


@in_virtual_time
async def test_rows_without_a_reward_are_counted_and_weigh_nothing(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=5)
    world.stages.reward = Dropping(world.stages.reward)
    world.platform = SimulatedPlatform(SPECS, world.stages.functions())
    found = await run_evaluation(world)
    kept = [score.reward for score in world.stages.reward.given if score.row_uid != "val-000000"]
    assert (found.num_rows, found.num_dropped_rows) == (5, 1)
    assert found.accuracy == pytest.approx(sum(kept) / 4)


@in_virtual_time
async def test_parts_have_keys_of_their_own_and_leave_nothing_behind(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=5, data__val_batch_size=2)
    await run_evaluation(world)
    calls = world.stages.seen(Stage.ROLLOUT, Purpose.EVAL)
    assert {call.key.round for call in calls} == {0, 1, 2}
    assert {call.key.step for call in calls} == {5}
    for part in range(3):
        assert await world.store.work.num_samples(BatchKey(run=RUN, purpose=Purpose.EVAL, step=5, round=part)) == 0
    assert not world.stages.seen(Stage.LEARNER)


@in_virtual_time
async def test_it_samples_as_evaluation_does_with_the_heads_policy(tmp_path: Path) -> None:
    world = await make_world(tmp_path, rollout__temperature=1.3)
    await run_evaluation(world)
    for call in world.stages.seen(Stage.ROLLOUT, Purpose.EVAL):
        assert call.policy == POLICY
        assert call.inputs.sampling.temperature == 0.0
        assert call.inputs.num_samples == 1


@in_virtual_time
async def test_without_a_batch_size_all_rows_are_one_part(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=6)
    await run_evaluation(world)
    assert {call.key.round for call in world.stages.seen(Stage.REWARD, Purpose.EVAL)} == {0}
