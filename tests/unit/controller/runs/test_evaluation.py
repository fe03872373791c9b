"""Evaluating a version on the held-out rows."""

from pathlib import Path

import pytest

from controller.runs.evaluation import Evaluation, evaluate
from controller.runs.manifest import Manifest
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose, Stage
from tests.fakes.sampled import POLICY
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world

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
