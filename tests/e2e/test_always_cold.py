"""No state hides in a function: a run whose replicas are all killed after every call is the same run."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from controller.runs.state import RunState
from shared.contracts.completion import SampleId
from shared.contracts.stage import Purpose
from tests.e2e.in_process import Finished, Parts
from tests.e2e.killing import AlwaysCold
from tests.e2e.weights import TOLERANCE, largest_difference
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="package")

NUM_STEPS = 3


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def warm(parts: Parts, workspace: Workspace) -> AsyncIterator[Finished]:
    """The run with whatever its replicas keep."""
    yield await parts.run(config_of(workspace))


def config_of(workspace: Workspace) -> dict[str, Any]:
    """Several updates a step, so that the optimizer's state matters from the first step on.

    Two actors, whatever the machine's speed makes of one.
    """
    return workspace.config(
        {
            "data.val_files": str(workspace.root / "heldout.jsonl"),
            "data.max_response_length": 40,
            "actor.ppo_mini_batch_size": 2,
            "rollout.num_actors": 2,
            "trainer.total_training_steps": NUM_STEPS,
        }
    )


async def test_killing_every_replica_after_every_call_changes_no_token_and_no_weight(
    parts: Parts, workspace: Workspace, warm: Finished
) -> None:
    platform = AlwaysCold(parts.platform, parts.settings.state_dir)
    cold = await parts.run(config_of(workspace), platform=platform)
    assert cold.record.state == RunState.SUCCEEDED, cold.record.info
    # Once each for the first version, two evaluations of sampling by two and scoring, three steps with an update too.
    assert len(platform.served_by) == 1 + 2 * 3 + NUM_STEPS * 4
    assert set(Counter(platform.served_by).values()) == {1}, "every call met a replica that knew nothing"
    assert cold.tokens() == warm.tokens()
    assert len(cold.tokens()) == NUM_STEPS + 2
    for batch, completions in cold.completions.items():
        for id, completion in completions.items():
            expected = warm.completions[batch][id].rollout_logprobs
            np.testing.assert_allclose(completion.rollout_logprobs, expected, rtol=0, atol=TOLERANCE)
    assert largest_difference(cold.weights(), warm.weights()) <= TOLERANCE
    assert "attempt 1 of" not in cold.log, "no call failed: they were only cold"


async def test_every_completion_carries_the_version_and_digest_that_its_step_trains(warm: Finished) -> None:
    digests: dict[int, set[str]] = {}
    for batch, completions in warm.completions.items():
        for completion in completions.values():
            assert completion.policy_version == batch.step
            digests.setdefault(batch.step, set()).add(completion.weights_digest)
    assert sorted(digests) == [0, 1, 2, 3]
    assert all(len(of_step) == 1 for of_step in digests.values())
    assert len(set.union(*digests.values())) == 4, "each step published other weights"
    assert digests[3] == {warm.head.policy.digest}


async def test_every_group_is_whole_and_its_samples_differ(warm: Finished) -> None:
    for (purpose, _), tokens in warm.tokens().items():
        size = 4 if purpose == Purpose.TRAIN else 1
        rows = {id.row_uid for id in tokens}
        assert set(tokens) == {SampleId(row, sample) for row in rows for sample in range(size)}
        assert len(rows) == 4
        for row in rows:
            texts = {tuple(tokens[SampleId(row, sample)]) for sample in range(size)}
            assert len(texts) > 1 or size == 1


async def test_the_ledgers_windows_add_up_to_the_replicas_lives(parts: Parts, warm: Finished) -> None:
    lines = [line for line in warm.history if "ledger" in line]
    started_at, ended_at = warm.record.info["started_at"], lines[-1]["time"]
    lives: Counter[str] = Counter()
    for life in await parts.platform.replicas():
        if life.started_at is not None and started_at <= life.started_at <= ended_at:
            lives[life.function] += min(life.ended_at or ended_at, ended_at) - life.started_at
    held: Counter[str] = Counter()
    for line in lines:
        for function, cost in line["ledger"].items():
            held[function] += sum(cost[part] for part in ("busy_s", "idle_s", "cold_s", "draining_s"))
    assert set(held) == {"rollout", "reward", "learner"}
    for function, held_s in held.items():
        # The last line is written a moment after its window has been closed.
        assert held_s == pytest.approx(lives[function], abs=0.25)


async def test_a_deleted_run_leaves_no_key_and_no_blob(parts: Parts, warm: Finished) -> None:
    run = warm.record.id
    of_run = f"{{{run}}}"
    assert [key for key in await parts.redis.keys("rlhfless") if of_run in key]
    async with parts.serving(parts.store, parts.platform) as service:
        await service.delete(run)
    assert not [key for key in await parts.redis.keys("rlhfless") if of_run in key]
    assert run not in [record.id for record in await parts.store.runs.list()]
    assert not (parts.settings.state_dir / "blobs" / run).exists()
