"""One replica's life, with a process that only notes its signals and a port that really listens."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from controller.platforms.local.fork_client import ForkServerError
from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.readiness import is_ready
from controller.platforms.local.replica import Departure, Process, Replica, ReplicaState
from shared.contracts.ids import InstanceId
from tests.unit.controller.platforms.local.waiting import until

MANIFEST = FunctionManifest(name="rollout", image="a", command=("a",))
FOREVER = 1e9


class FakeProcess:
    """A process that ends by SIGTERM unless it is stubborn."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.exit_status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.signals: list[str] = []
        self._stubborn = stubborn

    def terminate(self) -> None:
        self.signals.append("TERM")
        if not self._stubborn:
            self.end(0)

    def kill(self) -> None:
        if not self.exit_status.done():
            self.signals.append("KILL")
            self.end(-9)

    def end(self, status: int) -> None:
        if not self.exit_status.done():
            self.exit_status.set_result(status)


@dataclass
class FakeOwner:
    """Notes what it is told."""

    told: list[str] = field(default_factory=list)

    def replica_ready(self, replica: Replica) -> None:
        self.told.append("ready")

    def replica_unavailable(self, replica: Replica) -> None:
        self.told.append("unavailable")

    def replica_ended(self, replica: Replica) -> None:
        self.told.append("ended")


@asynccontextmanager
async def listening() -> AsyncIterator[HttpOrigin]:
    """An open port, which is all that a replica without a readiness path needs."""
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
        yield HttpOrigin("127.0.0.1", server.sockets[0].getsockname()[1])


def new_replica(owner: FakeOwner, manifest: FunctionManifest = MANIFEST) -> Replica:
    return Replica(InstanceId("rollout-00001-a"), manifest, "rollout-00001", owner, time.time)


def gentle(reason: str = "scaled down", **changes: float) -> Departure:
    return replace(Departure(reason=reason, kill_at=FOREVER, finish_requests=True), **changes)


def now() -> float:
    return asyncio.get_running_loop().time()


async def never_ready() -> bool:
    return False


async def started(
    owner: FakeOwner, origin: HttpOrigin, process: Process, manifest: FunctionManifest = MANIFEST
) -> Replica:
    async def spawn() -> Process:
        return process

    replica = new_replica(owner, manifest)
    replica.start(spawn, origin, partial(is_ready, origin, None))
    await until(lambda: replica.life.started_at is not None)
    return replica


async def test_from_the_wish_to_the_end() -> None:
    owner, process = FakeOwner(), FakeProcess()
    async with listening() as origin:
        replica = await started(owner, origin, process)
        await until(lambda: replica.state is ReplicaState.READY)
        replica.leave(gentle())
        assert replica.state is ReplicaState.DRAINING
        await replica.wait_ended()
    assert replica.state is ReplicaState.ENDED
    assert owner.told == ["ready", "unavailable", "ended"]
    life = replica.life
    times = [life.scheduled_at, life.started_at, life.ready_at, life.draining_at, life.ended_at]
    known = [time for time in times if time is not None]
    assert len(known) == 5
    assert known == sorted(known)
    assert (life.reason, replica.failed) == ("scaled down", False)


async def test_a_pending_replica_leaves_without_a_process() -> None:
    owner = FakeOwner()
    replica = new_replica(owner)
    replica.stay_pending("unschedulable: no room")
    assert (replica.state, replica.life.reason) == (ReplicaState.PENDING, "unschedulable: no room")
    replica.leave(gentle())
    assert replica.state is ReplicaState.ENDED
    assert owner.told == ["ended"]


async def test_it_leaves_at_once_while_its_process_is_not_there_yet(unused_port: Callable[[], int]) -> None:
    async def never() -> Process:
        await asyncio.sleep(FOREVER)
        raise AssertionError

    owner = FakeOwner()
    replica = new_replica(owner)
    replica.start(never, HttpOrigin("127.0.0.1", unused_port()), never_ready)
    await asyncio.sleep(0)
    replica.leave(gentle())
    await replica.wait_ended()
    assert (replica.life.started_at, replica.life.draining_at) == (None, None)
    assert not replica.failed


async def test_a_process_that_cannot_be_forked(unused_port: Callable[[], int]) -> None:
    async def fail() -> Process:
        raise ForkServerError("no memory")

    replica = new_replica(FakeOwner())
    replica.start(fail, HttpOrigin("127.0.0.1", unused_port()), never_ready)
    await replica.wait_ended()
    assert (replica.life.reason, replica.failed) == ("failed to start: no memory", True)


async def test_it_dies_before_it_is_ready(unused_port: Callable[[], int]) -> None:
    owner, process = FakeOwner(), FakeProcess()
    replica = await started(owner, HttpOrigin("127.0.0.1", unused_port()), process)
    process.end(1)
    await replica.wait_ended()
    assert owner.told == ["ended"]
    assert (replica.life.reason, replica.life.ready_at, replica.failed) == ("exited with code 1", None, True)


async def test_sigterm_waits_for_the_requests_in_flight() -> None:
    owner, process = FakeOwner(), FakeProcess()
    async with listening() as origin:
        replica = await started(owner, origin, process)
        await replica.queue.enter()
        replica.leave(gentle())
        await asyncio.sleep(0.03)
        assert process.signals == []
        replica.queue.leave()
        replica.request_ended()
        await replica.wait_ended()
    assert process.signals == ["TERM"]


async def test_sigterm_waits_for_the_quiet_time() -> None:
    owner, process = FakeOwner(), FakeProcess()
    async with listening() as origin:
        replica = await started(owner, origin, process)
        until_then = now() + 0.05
        replica.leave(gentle(quiet_until=until_then))
        await replica.wait_ended()
    assert now() >= until_then


async def test_sigkill_ends_what_does_not_end_by_itself() -> None:
    owner, process = FakeOwner(), FakeProcess(stubborn=True)
    async with listening() as origin:
        replica = await started(owner, origin, process)
        replica.leave(gentle(kill_at=now() + 0.03))
        await replica.wait_ended()
    assert process.signals == ["TERM", "KILL"]
    assert replica.life.reason == "scaled down, killed"


async def test_a_second_departure_can_only_hasten_the_first() -> None:
    owner, process = FakeOwner(), FakeProcess(stubborn=True)
    async with listening() as origin:
        replica = await started(owner, origin, process)
        await replica.queue.enter()
        replica.leave(gentle(quiet_until=FOREVER))
        replica.leave(Departure(reason="released", kill_at=now() + 0.03, finish_requests=False))
        replica.leave(gentle(kill_at=FOREVER))
        await replica.wait_ended()
    assert process.signals == ["TERM", "KILL"]


async def test_a_replica_that_cannot_be_reached_is_probed_again() -> None:
    owner, process = FakeOwner(), FakeProcess()
    async with listening() as origin:
        replica = await started(owner, origin, process)
        await until(lambda: owner.told == ["ready"])
        replica.suspect()
        await until(lambda: owner.told == ["ready", "unavailable", "ready"])
        replica.suspect()
        process.end(-9)
        await replica.wait_ended()
    assert replica.life.reason == "killed by signal 9 (SIGKILL)"


async def test_not_ready_in_time(unused_port: Callable[[], int]) -> None:
    owner, process = FakeOwner(), FakeProcess()
    manifest = replace(MANIFEST, progress_deadline_s=0.05)
    replica = await started(owner, HttpOrigin("127.0.0.1", unused_port()), process, manifest)
    await replica.wait_ended()
    assert process.signals == ["TERM"]
    assert (replica.life.reason, replica.failed) == ("not ready within 0.05 s", True)
