"""A replica that is killed in the middle of a call costs time and nothing else: the step completes, its batch whole."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from controller.platforms.base import Platform
from controller.runs.state import RunState
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose, Stage
from tests.e2e.in_process import Finished, Parts
from tests.e2e.killing import KilledOnce
from tests.e2e.weights import TOLERANCE, largest_difference
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="package")

NUM_TOKENS = 250
NUM_COMPLETIONS = 16


def config_of(workspace: Workspace, *, reward: str = "share_of_ones") -> dict[str, Any]:
    """One step in which each actor samples two groups, one after the other, and the learner makes many updates."""
    return workspace.config(
        {
            "data.max_response_length": NUM_TOKENS,
            "rollout.ignore_eos": True,
            "rollout.max_num_seqs": 4,
            "actor.ppo_mini_batch_size": 1,
            "actor.ppo_epochs": 3,
            "trainer.total_training_steps": 1,
        },
        reward=reward,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def undisturbed(parts: Parts, workspace: Workspace) -> AsyncIterator[Finished]:
    """What the run comes to when nothing happens to it."""
    yield await parts.run(config_of(workspace))


def assert_as_undisturbed(finished: Finished, undisturbed: Finished) -> None:
    """The same completions once each, the same batch, the same weights; and something did happen."""
    assert finished.record.state == RunState.SUCCEEDED, finished.record.info
    assert "attempt 1 of" in finished.log, "no call failed, so nothing was killed in its middle"
    assert finished.tokens() == undisturbed.tokens()
    [metrics] = [line["metrics"] for line in finished.history if line["kind"] == "step"]
    [expected] = [line["metrics"] for line in undisturbed.history if line["kind"] == "step"]
    assert metrics["perf/total_num_tokens"] == NUM_COMPLETIONS * (4 + NUM_TOKENS)
    assert metrics["critic/score/mean"] == pytest.approx(expected["critic/score/mean"])
    assert largest_difference(finished.weights(), undisturbed.weights()) <= TOLERANCE


async def test_a_rollout_replica(parts: Parts, workspace: Workspace, undisturbed: Finished) -> None:
    async def some_are_committed() -> bool:
        runs = await parts.store.runs.list()
        batch = BatchKey(run=runs[-1].id, purpose=Purpose.TRAIN, step=0)
        # So many that both actors still work on a group each.
        return 4 <= await parts.store.work.num_samples(batch) <= 8

    platform = KilledOnce(parts.platform, parts.settings.state_dir, Stage.ROLLOUT, when=some_are_committed)
    finished = await parts.run(config_of(workspace), platform=platform)
    assert platform.num_killed == 1
    assert_as_undisturbed(finished, undisturbed)


@pytest.mark.parametrize("stage", [Stage.REWARD, Stage.LEARNER])
async def test_the_replica_of_another_stage(
    parts: Parts, workspace: Workspace, undisturbed: Finished, stage: Stage
) -> None:
    async def is_computing() -> bool:
        if not await is_called(parts.platform, stage):
            return False
        await asyncio.sleep(0.1)
        return True

    platform = KilledOnce(parts.platform, parts.settings.state_dir, stage, when=is_computing)
    finished = await parts.run(config_of(workspace, reward="slow"), platform=platform)
    assert platform.num_killed == 1
    assert_as_undisturbed(finished, undisturbed)


async def is_called(platform: Platform, stage: Stage) -> bool:
    """Whether a replica of the stage works on a call."""
    return any(stage in function.stages and function.num_in_flight for function in await platform.functions())
