"""The adapter against what was measured on Knative Serving 1.23 (see ``test_measured``): by its port, through the API.

The cluster behind the API server is that of ``test_measured``; here it is asked by merge patches and HTTP alone.
"""

import asyncio

import pytest

from controller.platforms.knative.holding import HELD_BY, HOLD_UNTIL
from controller.platforms.knative.pod_reading import DELETION_COST
from controller.platforms.simulated.clock import run_virtual
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.adapter import HOLDER, stand
from tests.fakes.kubernetes.api_server import REVISIONS
from tests.fakes.kubernetes.services import base_service
from tests.fakes.virtual import in_virtual_time

ROLLOUT = base_service("rollout", window="6s")
FIRST = "rollout-00001"
MIN_SCALE = "autoscaling.knative.dev/min-scale"


@in_virtual_time
async def test_one_patch_of_the_revision_warms_four_before_any_request() -> None:
    """Measured: pods are created 0.5 s after the patch, 4 of 4 ready after 3.3 s, no new revision."""
    async with stand(ROLLOUT) as at:
        asked_at = at.platform.now()
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=asked_at + 60)
        await asyncio.sleep(4.0)
        lives = at.cluster.lives("rollout")
        assert len(lives) == 4
        assert all(life.scheduled_at - asked_at <= 0.5 for life in lives)
        assert all(life.ready_at is not None and life.ready_at - asked_at <= 3.3 for life in lives)
        [state] = await at.platform.functions()
        assert (state.num_ready, state.min_scale, state.revision) == (4, 4, FIRST)
        assert [revision.name for revision in state.revisions] == [FIRST]
        assert not at.api.patches("services")
        annotations = at.api.store.get(REVISIONS, FIRST)["metadata"]["annotations"]
        assert annotations[MIN_SCALE] == "4"
        assert annotations[HELD_BY] == HOLDER


@pytest.mark.parametrize("seed", range(3))
def test_withdrawn_without_load_all_go_and_are_gone_30_s_later(seed: int) -> None:
    """Measured: the first are terminating after 1 s, all of them within 7 s, gone from the node 30 s after that."""

    async def scenario() -> None:
        async with stand(ROLLOUT, seed=seed) as at:
            await at.platform.scale(Stage.ROLLOUT, 4, hold_until=at.platform.now() + 600)
            await asyncio.sleep(20.0)
            withdrawn_at = at.platform.now()
            await at.platform.scale(Stage.ROLLOUT, 0, hold_until=0)
            await asyncio.sleep(60.0)
            lives = await at.platform.replicas()
            draining = sorted(life.draining_at - withdrawn_at for life in lives if life.draining_at is not None)
            assert len(draining) == 4
            # The API's times are whole seconds.
            assert draining[0] <= 1.0
            assert 3.0 <= draining[-1] <= 7.1
            assert all(
                life.ended_at and life.ended_at - life.draining_at == pytest.approx(30.0, abs=1.2) for life in lives
            )
            assert at.api.store.get(REVISIONS, FIRST)["metadata"]["annotations"][MIN_SCALE] == "0"
            assert HOLD_UNTIL not in at.api.store.get(REVISIONS, FIRST)["metadata"]["annotations"]

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_calls", [4, 8])
def test_a_hold_that_is_withdrawn_early_takes_no_busy_replica(seed: int, num_calls: int) -> None:
    """Measured without this care, 2 s after 4 requests had started: two busy ones went and two came, 6 for 4."""

    async def scenario() -> None:
        async with stand(ROLLOUT, seed=seed) as at:
            await at.platform.scale(Stage.ROLLOUT, num_calls, hold_until=at.platform.now() + 600)
            await asyncio.sleep(10.0)
            calls = [at.call(Stage.ROLLOUT, 45.0) for _ in range(num_calls)]
            await asyncio.sleep(2.0)
            await at.platform.scale(Stage.ROLLOUT, 0, hold_until=0)
            await asyncio.sleep(40.0)
            assert at.cluster.num_pods("rollout") == num_calls
            assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * num_calls
            await asyncio.sleep(60.0)
            assert len(at.cluster.lives("rollout")) == num_calls
            assert at.cluster.num_pods("rollout") == 0

    run_virtual(scenario())


@in_virtual_time
async def test_retired_replicas_go_first() -> None:
    """Measured: of 4 pods the two annotated with -100 were those removed on 4 to 2."""
    async with stand(ROLLOUT) as at:
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=at.platform.now() + 600)
        await asyncio.sleep(10.0)
        # The oldest, which would be the last to go.
        finished = [life.instance for life in at.cluster.lives("rollout")][:2]
        await at.platform.retire(Stage.ROLLOUT, finished)
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=at.platform.now() + 600)
        await asyncio.sleep(3.0)
        draining = [life.instance for life in await at.platform.replicas() if life.draining_at is not None]
        assert sorted(draining) == sorted(finished)


@in_virtual_time
async def test_who_asks_for_more_replicas_has_work_for_the_retired_ones() -> None:
    async with stand(ROLLOUT) as at:
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=at.platform.now() + 600)
        await asyncio.sleep(10.0)
        first, second = [life.instance for life in at.cluster.lives("rollout")]
        await at.platform.retire(Stage.ROLLOUT, [first])
        await at.platform.scale(Stage.ROLLOUT, 1, hold_until=0)
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=at.platform.now() + 600)
        patches = [(asked.name, asked.body["metadata"]["annotations"]) for asked in at.api.patches("pods")]
        assert patches == [(first, {DELETION_COST: "-100"}), (first, {DELETION_COST: None})]
        assert second != first


@in_virtual_time
async def test_a_minimum_follows_the_actors_that_still_work() -> None:
    """Two of four actors end early: withdrawn then, the minimum is what is at work until the window has seen it."""
    async with stand(ROLLOUT) as at:
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=at.platform.now() + 600)
        await asyncio.sleep(10.0)
        calls = [at.call(Stage.ROLLOUT, duration_s) for duration_s in (3.0, 3.0, 60.0, 60.0)]
        await asyncio.sleep(1.0)
        await at.platform.scale(Stage.ROLLOUT, 0, hold_until=0)
        await asyncio.sleep(0.1)
        minima = [asked.body["metadata"]["annotations"][MIN_SCALE] for asked in at.api.patches("revisions")]
        assert minima == ["4", "4"], "until a later time"
        await asyncio.sleep(3.0)
        assert at.api.patches("revisions")[-1].body["metadata"]["annotations"][MIN_SCALE] == "2"
        await asyncio.sleep(20.0)
        assert at.api.patches("revisions")[-1].body["metadata"]["annotations"][MIN_SCALE] == "0"
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 4
        busy = {reply.headers["x-instance"] for reply in [await call for call in calls[2:]]}
        assert len(at.cluster.lives("rollout")) == 4
        assert len(busy) == 2


@in_virtual_time
async def test_a_call_from_zero_waits_for_a_cold_start() -> None:
    """Measured: 200 after 1.4 to 1.7 s, which is what the small container takes to start."""
    async with stand(ROLLOUT) as at:
        sent_at = at.platform.now()
        reply = await at.call(Stage.ROLLOUT, 0.0)
        assert reply.status == 200
        assert reply.body == FIRST.encode()
        assert at.platform.now() - sent_at <= 3.0
