"""One revision in virtual time: which way requests take, how many replicas there are, and what ends them."""

import asyncio
from dataclasses import replace

import pytest

from controller.platforms.local.activator import QueueFull, TurnedAway
from controller.platforms.local.capacity import Machine
from controller.platforms.local.manifest import Resources
from tests.fakes.virtual import in_virtual_time
from tests.simulation.knative.cluster import FIRST, cluster, function
from tests.simulation.knative.paced_pods import PacedPods

FULL_USE = {"target_utilization_percentage": "100"}


@in_virtual_time
async def test_a_request_waits_for_the_pod_that_it_starts() -> None:
    async with cluster(function(target_burst_capacity="-1"), pods=PacedPods(start_s=4.0)) as at:
        began = at.now
        assert await at.send(10.0) == FIRST
        assert 14.0 <= at.now - began <= 14.1


@in_virtual_time
async def test_with_room_for_the_burst_requests_go_straight_to_the_replicas() -> None:
    async with cluster(function(10, target_burst_capacity="5", min_scale="2", **FULL_USE)) as at:
        assert not at.revision().activator_in_path
        requests = [at.send(30.0) for _ in range(4)]
        await asyncio.sleep(1.0)
        assert [replica.queue.num_running for replica in at.revision().replicas.ready] == [2, 2], "least requests"
        more = [at.send(30.0) for _ in range(14)]
        await asyncio.sleep(10.0)
        assert at.revision().activator_in_path, "20 slots less 18 requests are no room for 5"
        await asyncio.gather(*requests, *more)


@in_virtual_time
async def test_past_the_activator_each_replica_has_a_queue_of_its_own() -> None:
    async with cluster(function(1, target_burst_capacity="0", min_scale="1", max_scale="1", **FULL_USE)) as at:
        requests = [at.send(1.0) for _ in range(11)]
        await asyncio.sleep(0.5)
        assert (at.revision().num_in_flight, at.revision().num_queued) == (1, 10)
        with pytest.raises(QueueFull):
            await at.send(1.0)
        await asyncio.gather(*requests)


@in_virtual_time
async def test_at_zero_the_activator_is_always_in_the_path() -> None:
    async with cluster(function(1, target_burst_capacity="0")) as at:
        assert at.revision().activator_in_path
        await at.send(10.0)
        await asyncio.sleep(3.0)
        assert not at.revision().activator_in_path


@in_virtual_time
async def test_who_waits_at_a_replica_that_dies_is_served_by_another() -> None:
    async with cluster(function(1, target_burst_capacity="0", min_scale="2", max_scale="2")) as at:
        requests = [at.send(3.0) for _ in range(4)]
        await asyncio.sleep(1.0)
        [doomed, other] = at.revision().replicas.ready
        assert (doomed.queue.num_waiting, other.queue.num_waiting) == (1, 1)
        at.pods.pods[doomed.instance].kill()
        await asyncio.sleep(0.1)
        assert other.queue.num_waiting == 2, "at once"
        assert await asyncio.gather(*requests) == [FIRST] * 4
        assert other.queue.num_running == 0


@in_virtual_time
async def test_without_an_activator_the_average_falls_with_idle_replicas_reports() -> None:
    async with cluster(function(1, window="10s", **FULL_USE)) as at:
        await asyncio.gather(*(at.send(30.0) for _ in range(4)))
        await asyncio.sleep(6.0)
        assert 0 < at.num_pods() < 4
    async with cluster(function(1, window="10s", target_burst_capacity="-1", **FULL_USE)) as at:
        await asyncio.gather(*(at.send(30.0) for _ in range(4)))
        await asyncio.sleep(6.0)
        assert at.num_pods() == 4


@in_virtual_time
async def test_replicas_beyond_the_machine_stay_pending_until_there_is_room() -> None:
    manifest = replace(function(1, target_burst_capacity="-1"), resources=Resources(num_gpus=2))
    machine = Machine(num_cpus=1, memory_bytes=1, num_gpus=4)
    async with cluster(manifest, pods=PacedPods(start_s=1.0, machine=machine), drain_s=0.0) as at:
        at.annotate(min_scale="3")
        await asyncio.sleep(5.0)
        reasons = [life.reason for life in at.lives() if life.started_at is None]
        assert reasons == ["unschedulable: 2 gpus wanted, 0 of 4 free"]
        next(iter(at.pods.pods.values())).kill()
        await asyncio.sleep(5.0)
        assert len(at.revision().replicas.ready) == 2
        assert at.num_pods() == 3


@in_virtual_time
async def test_a_revision_that_does_not_become_ready_is_given_up() -> None:
    pods = PacedPods(start_s=1.0, becomes_ready=lambda revision: False)
    manifest = replace(function(1, target_burst_capacity="-1", window="6s", **FULL_USE), progress_deadline_s=120.0)
    async with cluster(manifest, pods=pods) as at:
        request = at.send(1.0)
        await asyncio.sleep(100.0)
        request.cancel()
        await asyncio.sleep(45.0)
        assert at.num_pods() == 1
        await asyncio.sleep(10.0)
        assert at.num_pods() == 0
        assert "not ready within 120 s" in at.revision().failure


@in_virtual_time
async def test_release_sends_away_who_waits_at_the_activator_and_at_a_replica() -> None:
    async with cluster(function(1, target_burst_capacity="0", max_scale="1")) as at:
        at_activator = [at.send(60.0) for _ in range(2)]
        await asyncio.sleep(10.0)
        at_replica = at.send(60.0)
        await asyncio.sleep(1.0)
        assert [replica.queue.num_waiting for replica in at.revision().replicas.ready] == [1]
        at.revision().release("released", grace_s=1.0)
        for waiting in (at_activator[1], at_replica):
            with pytest.raises(TurnedAway):
                await waiting
        at_activator[0].cancel()
        await asyncio.sleep(2.0)
        assert at.lives()[-1].reason.startswith("released")
        assert await at.send(1.0) == FIRST, "the revision itself is still there"


@in_virtual_time
async def test_edited_annotations_scale_it_and_change_what_it_averages() -> None:
    async with cluster(function(1, target_burst_capacity="-1", **FULL_USE)) as at:
        at.annotate(min_scale="3")
        await at.send(5.0)
        assert len(at.revision().replicas.ready) == 3
        at.annotate(min_scale=None)
        await asyncio.sleep(20.0)
        assert at.num_pods() == 1, "a minute's average remembers the request"
        at.annotate(window="6s")
        await asyncio.sleep(6.0)
        assert at.num_pods() == 0
