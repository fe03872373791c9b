"""What was measured on Knative Serving 1.23 with Kubernetes 1.34 (one node, Kourier), and what these functions do.

The measured service: containerConcurrency 1, target-utilization 100, target-burst-capacity -1, max-scale 8, a small
container. A cluster adds some tenths of a second between a decision and its effect, which these functions do not;
the tolerances allow for that. Where the figure depends on when in the autoscaler's rhythm something happens, which a
single measurement cannot show, several rhythms are tried.
"""

import asyncio
from collections import Counter

import pytest

from controller.platforms.local.victims import FINISHED_COST
from controller.platforms.simulated.clock import run_virtual
from tests.fakes.virtual import in_virtual_time
from tests.simulation.knative.cluster import DRAIN_S, FIRST, cluster, function
from tests.simulation.knative.paced_pods import PacedPods

MEASURED = {"target_utilization_percentage": "100", "target_burst_capacity": "-1", "max_scale": "8"}
SHORT_WINDOW = {**MEASURED, "window": "6s"}
RHYTHMS = range(12)


@in_virtual_time
async def test_one_patch_warms_four_before_any_request() -> None:
    """Measured: pods are created 0.5 s after the patch, 4 of 4 ready after 3.3 s, no new revision."""
    async with cluster(function(**SHORT_WINDOW), pods=PacedPods(start_s=2.8)) as at:
        patched = at.now
        at.annotate(min_scale="4")
        await asyncio.sleep(10.0)
        lives = at.lives()
        assert len(lives) == 4
        assert all(life.scheduled_at - patched <= 0.5 for life in lives)
        assert all(life.ready_at is not None and 2.75 <= life.ready_at - patched <= 3.3 for life in lives)
        assert {life.revision for life in lives} == {FIRST}


@pytest.mark.parametrize("seed", RHYTHMS)
def test_back_to_zero_without_load(seed: int) -> None:
    """Measured: the first are terminating after 1 s, all of them within 7 s, gone from the node 30 s after that."""

    async def scenario() -> None:
        async with cluster(function(**SHORT_WINDOW), seed=seed) as at:
            at.annotate(min_scale="4")
            await asyncio.sleep(20.0)
            patched = at.now
            at.annotate(min_scale="0")
            await asyncio.sleep(60.0)
            terminating = sorted(life.draining_at - patched for life in at.lives() if life.draining_at is not None)
            assert len(terminating) == 4
            assert terminating[0] <= 1.0
            assert 4.0 <= terminating[-1] <= 7.1
            for life in at.lives():
                assert life.ended_at is not None
                assert life.draining_at is not None
                assert life.ended_at - life.draining_at == pytest.approx(DRAIN_S, abs=0.5)

    run_virtual(scenario())


async def lowered_too_early(seed: int) -> tuple[int, int, float]:
    """Pods paid for, busy ones that were taken, and when the last one was started, after the patch."""
    async with cluster(function(**SHORT_WINDOW), seed=seed) as at:
        at.annotate(min_scale="4")
        await asyncio.sleep(10.0)
        requests = [at.send(45.0) for _ in range(4)]
        await asyncio.sleep(2.0)
        patched = at.now
        at.annotate(min_scale="0")
        await asyncio.sleep(5.0)
        draining = [life for life in at.lives() if life.draining_at is not None]
        assert all(life.num_in_flight == 1 for life in draining), "a busy one is not spared"
        assert await asyncio.gather(*requests) == [FIRST] * 4, "they answer before they go"
        await asyncio.sleep(100.0)
        lives = at.lives()
        return len(lives), len(draining), max(life.scheduled_at for life in lives) - patched


def test_a_minimum_that_is_lowered_too_early_takes_two_busy_pods_and_starts_two_more() -> None:
    """Measured, 2 s after 4 requests had started: two busy ones went, two were started a second later: 6 for 4.

    So it is at about half of the moments in the autoscaler's rhythm. At the others it has seen all four by then.
    """
    outcomes = [run_virtual(lowered_too_early(seed)) for seed in range(24)]
    by_kind = Counter((num_pods, num_taken) for num_pods, num_taken, _ in outcomes)
    assert set(by_kind) <= {(6, 2), (5, 1), (4, 0)}
    assert by_kind[6, 2] >= len(outcomes) / 3
    restarted_after = [after_s for num_pods, _, after_s in outcomes if num_pods == 6]
    assert 0.0 <= min(restarted_after) <= 1.0
    assert max(restarted_after) <= 4.0


@in_virtual_time
async def test_deletion_cost_decides_who_goes() -> None:
    """Measured: of 4 pods the two annotated with -100 were those removed on 4 to 2."""
    async with cluster(function(**SHORT_WINDOW)) as at:
        at.annotate(min_scale="4")
        await asyncio.sleep(10.0)
        # The oldest, which would be the last to go.
        finished = [life.instance for life in at.lives()][:2]
        at.functions.retire(at.revision().manifest.stages[0], finished)
        assert [replica.deletion_cost for replica in at.revision().replicas.ready] == [FINISHED_COST] * 2 + [0] * 2
        at.annotate(min_scale="2")
        await asyncio.sleep(1.0)
        assert [life.instance for life in at.lives() if life.draining_at is not None] == finished


@pytest.mark.parametrize("seed", RHYTHMS)
def test_a_windows_lag(seed: int) -> None:
    """Measured with a window of 6 s: after 2 of 4 requests had ended, 2 pods were removed 5 to 9 s later, and the two
    busy ones were left alone (here the busy ones are the older ones: the ReplicaSet does not know who is busy).
    """

    async def scenario() -> None:
        async with cluster(function(**SHORT_WINDOW), seed=seed) as at:
            at.annotate(min_scale="4")
            await asyncio.sleep(10.0)
            began = at.now
            requests = [at.send(duration_s) for duration_s in (45.0, 45.0, 15.0, 15.0)]
            await asyncio.sleep(10.0)
            at.annotate(min_scale="0")
            await asyncio.sleep(25.0)
            removed = sorted(life.draining_at - began - 15.0 for life in at.lives() if life.draining_at is not None)
            assert len(removed) == 2
            assert 3.0 <= removed[0] <= 9.0
            assert 5.0 <= removed[1] <= 9.0
            assert await asyncio.gather(*requests) == [FIRST] * 4

    run_virtual(scenario())


@in_virtual_time
async def test_a_cold_start_by_a_request_takes_as_long_as_the_pod() -> None:
    """Measured: 200 after 1.4 to 1.7 s, which is what the small container takes to start."""
    async with cluster(function(**MEASURED), pods=PacedPods(start_s=1.4)) as at:
        began = at.now
        await at.send(0.0)
        assert at.now - began == pytest.approx(1.4, abs=0.1)


@in_virtual_time
async def test_many_short_requests_are_all_answered() -> None:
    """Measured: 1,200 requests, 20 at a time, target 5, at most 4 pods: all 200."""
    async with cluster(function(0, target="5", max_scale="4"), pods=PacedPods(start_s=1.4)) as at:
        answers: list[str] = []

        async def caller() -> None:
            for _ in range(60):
                answers.append(await at.send(0.1))

        await asyncio.gather(*(caller() for _ in range(20)))
        assert answers == [FIRST] * 1200
        assert 2 <= len(at.lives()) <= 4
