"""The simulated platform behaves like Knative where a caller can tell."""

import asyncio
from collections.abc import Mapping

import pytest

from controller.platforms.base import FunctionUnknown, FunctionUnreachable, PlatformFigures, PlatformReply, ReplicaLife
from controller.platforms.simulated.clock import EPOCH, run_virtual
from controller.platforms.simulated.function_spec import FunctionSpec, ReplicaView
from controller.platforms.simulated.platform import SimulatedPlatform
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

WORK_S = 10.0


class Worker:
    """A stage function that works for a while, and remembers what became of its requests."""

    def __init__(self) -> None:
        self.served_by: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
        self.served_by.append(replica.instance)
        try:
            await asyncio.sleep(float(body or WORK_S))
        except asyncio.CancelledError:
            self.cancelled.append(replica.instance)
            raise
        return PlatformReply(status=200, headers=headers, body=path.encode())


class Setting:
    """A platform with one rollout function."""

    def __init__(self, **limits: float) -> None:
        self.worker = Worker()
        spec = FunctionSpec(name="rollout", stages=(Stage.ROLLOUT,), **limits)  # type: ignore[arg-type]
        self.platform = SimulatedPlatform([spec], {Stage.ROLLOUT: self.worker})

    async def call(self, work_s: float = WORK_S, timeout_s: float = 1000.0) -> int:
        reply = await self.platform.invoke(
            Stage.ROLLOUT, "/v1/rollout", str(work_s).encode(), headers={}, timeout_s=timeout_s
        )
        return reply.status

    def start_call(self, work_s: float = WORK_S) -> asyncio.Task[int]:
        return asyncio.create_task(self.call(work_s))

    async def lives(self) -> list[ReplicaLife]:
        return list(await self.platform.replicas())

    async def num_replicas(self) -> int:
        return (await self.platform.functions())[0].num_replicas

    def now(self) -> float:
        return self.platform.now() - EPOCH


def test_a_call_waits_for_the_cold_start_and_is_answered_by_the_function() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=3)
        reply = await setting.platform.invoke(
            Stage.ROLLOUT, "/v1/rollout", b"10", headers={"authorization": "x"}, timeout_s=100
        )
        assert (reply.status, reply.body, reply.headers) == (200, b"/v1/rollout", {"authorization": "x"})
        assert setting.now() == 13
        [life] = await setting.lives()
        assert (life.scheduled_at, life.started_at, life.ready_at) == (EPOCH, EPOCH, EPOCH + 3)
        assert life.draining_at is life.ended_at is None

    run_virtual(scenario())


def test_calls_at_once_get_a_replica_each_up_to_the_maximum() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, max_scale=2)
        assert await asyncio.gather(*(setting.call() for _ in range(5))) == [200] * 5
        assert len(await setting.lives()) == 2
        assert setting.now() == 1 + 3 * WORK_S

    run_virtual(scenario())


def test_a_replica_works_on_as_many_requests_as_its_concurrency() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, container_concurrency=3, max_scale=1)
        await asyncio.gather(*(setting.call() for _ in range(6)))
        assert len(await setting.lives()) == 1
        assert setting.now() == 1 + 2 * WORK_S

    run_virtual(scenario())


def test_replicas_leave_a_window_after_their_last_request() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, window_s=15, drain_s=4)
        await asyncio.gather(setting.call(5), setting.call(12))
        await asyncio.sleep(100)
        first, second = await setting.lives()
        assert (first.draining_at, first.ended_at, first.reason) == (EPOCH + 21, EPOCH + 25, "scaled down")
        assert (second.draining_at, second.ended_at) == (EPOCH + 28, EPOCH + 32)

    run_virtual(scenario())


def test_retired_replicas_leave_before_the_others() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, window_s=5)
        await setting.platform.scale(Stage.ROLLOUT, 3, hold_until=EPOCH + 1000)
        await asyncio.sleep(30)
        names = [life.instance for life in await setting.lives()]
        await setting.platform.retire(Stage.ROLLOUT, [names[1], InstanceId("gone")])
        assert await setting.num_replicas() == 3, "it is only taken when there are too many"
        await setting.platform.scale(Stage.ROLLOUT, 2, hold_until=EPOCH + 1000)
        assert [life.instance for life in await setting.lives() if life.draining_at is not None] == [names[1]]

    run_virtual(scenario())


def test_who_asks_for_more_replicas_has_work_for_the_retired_ones() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, window_s=5)
        await setting.platform.scale(Stage.ROLLOUT, 2, hold_until=EPOCH + 1000)
        await asyncio.sleep(30)
        first, second = [life.instance for life in await setting.lives()]
        await setting.platform.retire(Stage.ROLLOUT, [second])
        await setting.platform.scale(Stage.ROLLOUT, 3, hold_until=EPOCH + 1000)
        await asyncio.sleep(30)
        await setting.platform.retire(Stage.ROLLOUT, [first])
        await setting.platform.scale(Stage.ROLLOUT, 2, hold_until=EPOCH + 1000)
        assert [life.instance for life in await setting.lives() if life.draining_at is not None] == [first]

    run_virtual(scenario())


def test_asked_replicas_are_held_until_the_time_given() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, window_s=5)
        await setting.platform.scale(Stage.ROLLOUT, 3, hold_until=EPOCH + 30)
        await asyncio.sleep(29)
        [state] = await setting.platform.functions()
        assert (state.num_replicas, state.num_ready, state.min_scale) == (3, 3, 3)
        await asyncio.sleep(2)
        assert await setting.num_replicas() == 0

    run_virtual(scenario())


def test_a_withdrawn_hold_lets_the_idle_go() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, window_s=5)
        await setting.platform.scale(Stage.ROLLOUT, 2, hold_until=EPOCH + 1000)
        await asyncio.sleep(20)
        await setting.platform.scale(Stage.ROLLOUT, 0, hold_until=EPOCH + 1000)
        assert await setting.num_replicas() == 0

    run_virtual(scenario())


def test_a_minimum_is_kept() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, window_s=5, min_scale=1)
        assert await setting.num_replicas() == 1
        await asyncio.gather(setting.call(), setting.call())
        await asyncio.sleep(60)
        assert await setting.num_replicas() == 1

    run_virtual(scenario())


@pytest.mark.parametrize("answered", [True, False])
def test_a_killed_replica_loses_its_requests_and_another_takes_its_place(answered: bool) -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1)
        first, second = setting.start_call(), setting.start_call()
        await asyncio.sleep(5)
        victim, survivor = await setting.lives()
        setting.platform.kill(victim.instance, answered=answered)
        if answered:
            assert await first == 502
        else:
            with pytest.raises(FunctionUnreachable):
                await first
        assert await second == 200
        life = (await setting.lives())[0]
        assert (life.ended_at, life.draining_at, life.reason) == (EPOCH + 5, None, "killed by signal 9")
        assert setting.worker.cancelled == [victim.instance]
        assert await setting.call() == 200
        assert setting.worker.served_by[-1] == survivor.instance

    run_virtual(scenario())


def test_a_replica_killed_while_cold_is_replaced_for_the_one_who_waits() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=4)
        call = setting.start_call()
        await asyncio.sleep(2)
        setting.platform.kill((await setting.lives())[0].instance)
        assert await call == 200
        assert setting.now() == 2 + 4 + WORK_S

    run_virtual(scenario())


def test_only_the_living_can_be_killed() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.call()
        [life] = await setting.lives()
        setting.platform.kill(life.instance)
        for name in (life.instance, "nobody"):
            with pytest.raises(KeyError):
                setting.platform.kill(name)

    run_virtual(scenario())


def test_release_frees_everything_at_once() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, max_scale=1, drain_s=2)
        await setting.platform.scale(Stage.ROLLOUT, 1, hold_until=EPOCH + 1000)
        running, waiting = setting.start_call(), setting.start_call()
        await asyncio.sleep(5)
        await setting.platform.release(Stage.ROLLOUT)
        assert [await running, await waiting] == [503, 503]
        await asyncio.sleep(2)
        [life] = await setting.lives()
        assert (life.draining_at, life.ended_at, life.reason) == (EPOCH + 5, EPOCH + 7, "released")
        assert await setting.num_replicas() == 0
        assert await setting.call() == 200

    run_virtual(scenario())


def test_a_caller_that_leaves_stops_its_request() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, max_scale=1)
        running, waiting = setting.start_call(), setting.start_call()
        await asyncio.sleep(2)
        for task in (waiting, running):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(0)
        assert len(setting.worker.cancelled) == 1
        [state] = await setting.platform.functions()
        assert (state.num_in_flight, state.num_queued) == (0, 0)
        assert await setting.call() == 200

    run_virtual(scenario())


def test_a_caller_that_leaves_at_the_moment_of_its_turn_takes_no_room_with_it() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1, max_scale=1)
        leaving = setting.start_call()
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(1, leaving.cancel)
        await asyncio.wait({leaving})
        assert leaving.cancelled()
        assert setting.now() == 1
        assert setting.worker.served_by == [], "it has left before its request began"
        assert await setting.call() == 200

    run_virtual(scenario())


def test_the_functions_own_limit_counts_the_wait_and_is_a_504() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=6, timeout_s=10)
        assert await setting.call(5) == 504
        assert setting.now() == 10
        assert await setting.call(5) == 200

    run_virtual(scenario())


def test_a_caller_gives_up_after_its_own_limit() -> None:
    async def scenario() -> None:
        setting = Setting(cold_start_s=1)
        with pytest.raises(FunctionUnreachable, match="7 s"):
            await setting.call(timeout_s=7)
        assert setting.now() == 7

    run_virtual(scenario())


def test_a_stage_without_a_function_is_unknown() -> None:
    async def scenario() -> None:
        platform = Setting().platform
        with pytest.raises(FunctionUnknown, match="learner"):
            await platform.invoke(Stage.LEARNER, "/", b"", headers={}, timeout_s=1)
        with pytest.raises(FunctionUnknown):
            await platform.scale(Stage.LEARNER, 1, hold_until=0)
        with pytest.raises(FunctionUnknown):
            await platform.release(Stage.LEARNER)

    run_virtual(scenario())


def test_one_function_may_serve_several_stages_with_the_same_replicas() -> None:
    async def scenario() -> None:
        worker = Worker()
        spec = FunctionSpec(name="colocated", stages=(Stage.LEARNER, Stage.ROLLOUT), cold_start_s=1)
        platform = SimulatedPlatform([spec], {Stage.LEARNER: worker, Stage.ROLLOUT: worker})
        for stage in spec.stages:
            await platform.invoke(stage, stage.route, b"1", headers={}, timeout_s=100)
        assert len(set(worker.served_by)) == 1

    run_virtual(scenario())


def test_the_slowest_function_says_what_replicas_cost() -> None:
    specs = [
        FunctionSpec(name="rollout", stages=(Stage.ROLLOUT,), cold_start_s=9.0, drain_s=1.0),
        FunctionSpec(name="reward", stages=(Stage.REWARD,), cold_start_s=0.5, drain_s=2.0),
    ]

    async def ask() -> PlatformFigures:
        return SimulatedPlatform(specs, {}).figures()

    figures = run_virtual(ask())
    assert (figures.cold_start_s, figures.drain_s, figures.shared_threads) == (9.0, 2.0, False)
