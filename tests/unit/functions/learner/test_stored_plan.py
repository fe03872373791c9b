"""The packing plan is stored with the step, and a replay follows it."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from functions.learner.app import LearnerHandler
from shared.contracts.errors import MissingBlob
from shared.contracts.learner import AlgorithmConfig
from shared.training.errors import DamagedState
from tests.unit.functions.learner.test_app import World

CUT = AlgorithmConfig(max_token_len=12, ppo_epochs=2)
WHOLE = AlgorithmConfig(max_token_len=1000, ppo_epochs=2)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield await asyncio.to_thread(World, tmp_path, executor)


async def test_the_reply_names_which_rows_went_through_the_model_together(world: World) -> None:
    policy = await world.init()
    plans = []
    for algorithm in (CUT, WHOLE):
        outputs = (await world.update(policy, None, algorithm=algorithm)).outputs
        assert outputs.packing_plan.id.startswith("run-1/000000/packing-plan-")
        plans.append(json.loads(await world.context.blobs.get(outputs.packing_plan)))
    assert len(plans[0][0]) > 1
    assert plans[1] == [[[0, 1, 2, 3]]]
    assert sorted(index for micro_batch in plans[0][0] for index in micro_batch) == [0, 1, 2, 3]


async def test_a_replay_follows_the_plan_and_not_its_own_packing(world: World) -> None:
    policy = await world.init()
    first = (await world.update(policy, None, algorithm=CUT)).outputs
    other = (await world.update(policy, None, algorithm=WHOLE)).outputs
    world.handler = LearnerHandler(world.settings)
    replayed = (await world.update(policy, None, algorithm=WHOLE, packing_plan=first.packing_plan)).outputs
    assert replayed.packing_plan == first.packing_plan != other.packing_plan
    assert (replayed.policy, replayed.state) == (first.policy, first.state)


async def test_a_plan_of_another_batch_and_what_is_no_plan_are_refused(world: World) -> None:
    policy = await world.init()
    for wrong in (b"[[[0, 9]]]", b'{"a": 1}', b"[[[-1]]]", b"nothing"):
        ref = await world.context.blobs.put("run-1", 0, "packing-plan", wrong)
        with pytest.raises(DamagedState, match="packing"):
            await world.update(policy, None, packing_plan=ref)
    await world.context.blobs.delete_run("run-1")
    policy = await world.init()
    with pytest.raises(MissingBlob):
        await world.update(policy, None, packing_plan=ref)
