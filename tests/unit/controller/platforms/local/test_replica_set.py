"""The replicas of one revision, on pods in virtual time."""

import asyncio
from dataclasses import dataclass, field

from controller.platforms.local.capacity import Machine
from controller.platforms.local.manifest import FunctionManifest, Resources
from controller.platforms.local.place import Place
from controller.platforms.local.replica import Replica
from controller.platforms.local.replica_set import ReplicaSet, Template
from controller.platforms.simulated.clock import virtual_now
from shared.contracts.ids import InstanceId
from tests.fakes.virtual import in_virtual_time
from tests.simulation.knative.paced_pods import PacedPods

MANIFEST = FunctionManifest(
    name="rollout", image="pod", command=("serve",), resources=Resources(num_gpus=1), timeout_s=60.0
)


@dataclass
class FakeOwner:
    """Notes what it is told."""

    told: list[tuple[str, str]] = field(default_factory=list)

    def replica_ready(self, replica: Replica) -> None:
        self.told.append(("ready", replica.instance))

    def replica_unavailable(self, replica: Replica) -> None:
        self.told.append(("unavailable", replica.instance))

    def replica_ended(self, replica: Replica) -> None:
        self.told.append(("ended", replica.instance))


def replica_set(pods: PacedPods, owner: FakeOwner | None = None, *, drain_quiet_s: float = 5.0) -> ReplicaSet:
    template = Template(revision="rollout-00001", manifest=MANIFEST, env={})
    place = Place(starter=pods, clock=virtual_now, queue_limit=100, drain_quiet_s=drain_quiet_s)
    return ReplicaSet(template, owner or FakeOwner(), place)


@in_virtual_time
async def test_as_many_as_are_asked_for() -> None:
    owner = FakeOwner()
    replicas = replica_set(PacedPods(start_s=2.0), owner)
    replicas.scale_to(3)
    assert (len(replicas.active), len(replicas.ready)) == (3, 0)
    await asyncio.sleep(3.0)
    assert len(replicas.ready) == 3
    first, *newer = [replica.instance for replica in replicas.active]
    replicas.scale_to(1)
    assert [replica.instance for replica in replicas.active] == [first]
    await asyncio.sleep(6.0)
    assert [replica.instance for replica in replicas.all] == [first]
    assert sorted(instance for event, instance in owner.told if event == "ended") == sorted(newer)


@in_virtual_time
async def test_room_that_is_freed_is_taken_at_the_next_look() -> None:
    pods = PacedPods(start_s=1.0, machine=Machine(num_cpus=1, memory_bytes=1, num_gpus=1))
    replicas = replica_set(pods, drain_quiet_s=0.0)
    replicas.scale_to(2)
    await asyncio.sleep(2.0)
    [running, waiting] = replicas.lives()
    assert (running.reason, waiting.reason) == ("", "unschedulable: 1 gpus wanted, 0 of 1 free")
    pods.pods[running.instance].kill()
    await asyncio.sleep(0.1)
    replicas.reconcile()
    await asyncio.sleep(2.0)
    assert [replica.instance for replica in replicas.ready] == [waiting.instance]
    assert replicas.failure == "", "one that has been ready is replaced at once"


@in_virtual_time
async def test_what_fails_to_start_waits_longer_each_time() -> None:
    pods = PacedPods(start_s=1e6)
    replicas = replica_set(pods)
    replicas.scale_to(1)
    starts = []
    for num_failed in (1, 2, 3):
        await asyncio.sleep(0.1)
        [pod] = pods.pods.values()
        starts.append(virtual_now())
        pod.end(1)
        await asyncio.sleep(0.5)  # a probe is on its way
        replicas.reconcile()
        assert f"crash loop: {num_failed} failed to start, the last with 'exited with code 1" in replicas.failure
        assert [life.reason for life in replicas.lives()] == [replicas.failure]
        await asyncio.sleep(0.5 * 2.0 ** (num_failed - 1))
    first, second, third = starts
    assert third - second > second - first > 0.5


@in_virtual_time
async def test_the_finished_go_first_and_unknown_names_are_passed_over() -> None:
    replicas = replica_set(PacedPods(start_s=1.0))
    replicas.scale_to(3)
    await asyncio.sleep(2.0)
    finished = replicas.active[0].instance
    replicas.finish([finished, InstanceId("gone")])
    replicas.scale_to(2)
    assert finished not in [replica.instance for replica in replicas.active]


@in_virtual_time
async def test_lives_tell_who_is_busy() -> None:
    replicas = replica_set(PacedPods(start_s=1.0))
    replicas.scale_to(2)
    await asyncio.sleep(2.0)
    await replicas.ready[1].queue.enter()
    assert [life.num_in_flight for life in replicas.lives()] == [0, 1]


@in_virtual_time
async def test_after_the_end_nothing_starts() -> None:
    replicas = replica_set(PacedPods(start_s=1.0))
    replicas.scale_to(2)
    await asyncio.sleep(2.0)
    await replicas.stop("platform stopped", grace_s=1.0)
    replicas.scale_to(2)
    assert not list(replicas.all)
