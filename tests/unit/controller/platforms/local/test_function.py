"""A function's replicas with real processes: from zero and back, holds, releases, crashes, revisions."""

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controller.platforms.local.function_set import RevisionUnknown
from controller.platforms.local.manifest import Resources
from controller.platforms.local.pacing import Pacing
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.scaling_annotations import AnnotationRefused
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage
from tests.unit.controller.platforms.local.tiny_platform import (
    ONE_AT_A_TIME,
    TINY,
    call,
    ended,
    is_busy,
    living,
    ready,
    tiny_platform,
    tiny_settings,
)
from tests.unit.controller.platforms.local.waiting import runs, until

ALL_NIGHT = 3600.0


async def test_a_hold_starts_replicas_without_a_request_and_ends_by_itself(tmp_path: Path) -> None:
    manifest = replace(TINY, scaling=replace(ONE_AT_A_TIME, max_scale=3, window_s=0.2))
    async with tiny_platform(tmp_path, manifest) as platform:
        await platform.scale(Stage.ROLLOUT, 2, hold_until=time.time() + ALL_NIGHT)
        assert len(await living(platform)) == 2, "at once"
        await ready(platform, 2)
        await platform.scale(Stage.ROLLOUT, 9, hold_until=time.time() + ALL_NIGHT)
        await ready(platform, 3)
        assert (await platform.functions())[0].min_scale == 9
        await platform.scale(Stage.ROLLOUT, 9, hold_until=time.time() + 0.1)
        await ready(platform, 0)
        assert {life.reason for life in await platform.replicas()} == {"scaled down"}


async def test_each_of_n_calls_has_a_replica_of_its_own(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path) as platform:
        await platform.scale(Stage.ROLLOUT, 3, hold_until=time.time() + ALL_NIGHT)
        answers = await asyncio.gather(*(call(platform, "sleep=0.3") for _ in range(3)))
        assert len({answer["instance"] for answer in answers}) == 3


async def test_a_replica_gets_one_request_at_a_time(tmp_path: Path) -> None:
    manifest = replace(TINY, scaling=replace(ONE_AT_A_TIME, max_scale=1))
    async with tiny_platform(tmp_path, manifest) as platform:
        calls = [asyncio.create_task(call(platform, "sleep=0.1")) for _ in range(3)]

        async def one_works_two_wait() -> bool:
            [state] = await platform.functions()
            return (state.num_in_flight, state.num_queued) == (1, 2)

        await until(one_works_two_wait)
        answers = await asyncio.gather(*calls)
        assert len({answer["instance"] for answer in answers}) == 1


async def test_back_to_zero_after_a_silent_window(tmp_path: Path) -> None:
    manifest = replace(TINY, scaling=replace(ONE_AT_A_TIME, window_s=2.0))
    async with tiny_platform(tmp_path, manifest) as platform:
        first = await call(platform)
        await ready(platform, 0)
        assert not runs(first["pid"])
        [life] = await platform.replicas()
        assert life.reason == "scaled down"
        assert life.ready_at is not None
        assert life.draining_at is not None
        assert life.draining_at - life.ready_at >= 1.9
        assert (await call(platform))["instance"] != first["instance"]


async def test_a_busy_replica_is_taken_like_any_other_but_finishes_its_request(tmp_path: Path) -> None:
    manifest = replace(TINY, scaling=replace(ONE_AT_A_TIME, window_s=0.2))
    async with tiny_platform(tmp_path, manifest) as platform:
        await platform.scale(Stage.ROLLOUT, 2, hold_until=time.time() + ALL_NIGHT)
        await ready(platform, 2)
        working = asyncio.create_task(call(platform, "sleep=0.6"))
        await until(lambda: is_busy(platform))
        [busy] = [life for life in await living(platform) if life.num_in_flight]
        await platform.retire(Stage.ROLLOUT, [busy.instance, InstanceId("gone")])
        await platform.scale(Stage.ROLLOUT, 1, hold_until=time.time() + ALL_NIGHT)
        await until(lambda: drains(platform, busy.instance))
        assert (await call(platform))["instance"] != busy.instance, "it gets no new requests"
        answer = await working
        assert answer["instance"] == busy.instance
        assert (await ended(platform, busy.instance)).reason == "scaled down"
        assert not runs(answer["pid"])


async def test_who_asks_for_more_replicas_has_work_for_the_retired_ones(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path, replace(TINY, scaling=replace(ONE_AT_A_TIME, window_s=0.2))) as platform:
        await platform.scale(Stage.ROLLOUT, 1, hold_until=time.time() + ALL_NIGHT)
        await ready(platform, 1)
        [oldest] = await living(platform)
        await platform.retire(Stage.ROLLOUT, [oldest.instance])
        await platform.scale(Stage.ROLLOUT, 2, hold_until=time.time() + ALL_NIGHT)
        await ready(platform, 2)
        [newest] = [life for life in await living(platform) if life.instance != oldest.instance]
        await platform.scale(Stage.ROLLOUT, 1, hold_until=time.time() + ALL_NIGHT)
        await until(lambda: drains(platform, newest.instance))


async def drains(platform: LocalPlatform, instance: str) -> bool:
    return any(life.instance == instance and life.draining_at is not None for life in await living(platform))


async def test_release_frees_idle_and_busy_replicas(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path, release_grace_s=0.4) as platform:
        await platform.scale(Stage.ROLLOUT, 2, hold_until=time.time() + ALL_NIGHT)
        await ready(platform, 2)
        busy = asyncio.create_task(platform.invoke(Stage.ROLLOUT, "/?sleep=30", b"{}", headers={}, timeout_s=60.0))
        await until(lambda: is_busy(platform))
        await platform.release(Stage.ROLLOUT)
        await ready(platform, 0)
        assert (await busy).status == 502
        reasons = sorted(life.reason for life in await platform.replicas())
        assert reasons == ["released", "released, killed"]
        assert (await call(platform))["instance"], "the function itself is still there"


async def test_who_waits_when_the_function_is_released_gets_503(tmp_path: Path) -> None:
    manifest = replace(TINY, resources=Resources(num_cpus=9))
    async with tiny_platform(tmp_path, manifest) as platform:
        waiting = asyncio.create_task(platform.invoke(Stage.ROLLOUT, "/", b"{}", headers={}, timeout_s=60.0))
        await until(lambda: is_pending(platform, "rollout"))
        await platform.release(Stage.ROLLOUT)
        assert (await waiting).status == 503
        assert await living(platform) == []


async def test_a_replica_killed_in_mid_request_gives_502_and_is_replaced(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path, pacing=Pacing(tick_s=ALL_NIGHT)) as platform:
        first = await call(platform)
        working = asyncio.create_task(platform.invoke(Stage.ROLLOUT, "/?sleep=30", b"{}", headers={}, timeout_s=60.0))
        await until(lambda: is_busy(platform))
        os.kill(first["pid"], signal.SIGKILL)
        assert (await working).status == 502
        assert (await call(platform))["instance"] != first["instance"]
        life = await ended(platform, first["instance"])
        assert life.reason == "killed by signal 9 (SIGKILL)"
        assert life.draining_at is None


async def test_what_a_replica_started_ends_with_it(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path) as platform:
        answer = await call(platform, "child=60")
        [child] = answer["children"]
        assert runs(child)
        await platform.release(Stage.ROLLOUT)
        await until(lambda: not runs(child))


async def test_replicas_beyond_the_machine_stay_pending_with_the_reason(tmp_path: Path) -> None:
    manifest = replace(TINY, resources=Resources(num_cpus=1.5))
    async with tiny_platform(tmp_path, manifest, num_cpus=2.0) as platform:
        await platform.scale(Stage.ROLLOUT, 2, hold_until=time.time() + ALL_NIGHT)
        first = await call(platform)
        [state] = await platform.functions()
        assert (state.num_ready, state.num_pending) == (1, 1)
        pending = (await living(platform))[1]
        assert pending.started_at is None
        assert pending.reason == "unschedulable: 1.5 cpus wanted, 0.5 of 2 free"
        os.kill(first["pid"], signal.SIGKILL)

        async def has_started() -> bool:
            return any(life.instance == pending.instance and life.ready_at for life in await living(platform))

        await until(has_started)


async def test_room_that_one_function_leaves_is_another_ones(tmp_path: Path) -> None:
    half = Resources(num_cpus=1.5)
    reward = replace(TINY, name="reward", stages=(Stage.REWARD,), resources=half)
    async with tiny_platform(tmp_path, replace(TINY, resources=half), reward, num_cpus=2.0) as platform:
        await call(platform)
        waiting = asyncio.create_task(call(platform, stage=Stage.REWARD))
        await until(lambda: is_pending(platform, "reward"))
        await platform.release(Stage.ROLLOUT)
        assert (await waiting)["instance"].startswith("reward-00001-")


async def is_pending(platform: LocalPlatform, name: str) -> bool:
    return any(state.name == name and state.num_pending for state in await platform.functions())


async def test_a_crash_loop_backs_off_and_says_why(tmp_path: Path) -> None:
    manifest = replace(TINY, env={"TINY_CRASH": "1"})
    async with tiny_platform(tmp_path, manifest) as platform:
        await platform.scale(Stage.ROLLOUT, 1, hold_until=time.time() + ALL_NIGHT)
        waits = "crash loop: 2 failed to start, the last with 'exited with code 3"

        async def backs_off() -> bool:
            [state] = await platform.functions()
            pending = [life.reason for life in await living(platform) if life.started_at is None]
            return not state.ready and waits in state.reason and pending == [state.reason]

        await until(backs_off)
        reasons = [life.reason for life in await platform.replicas() if life.ended_at is not None]
        assert reasons == ["exited with code 3"] * 2


async def test_a_replica_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    manifest = replace(TINY, env={"TINY_STARTUP_S": "60"}, progress_deadline_s=0.2)
    async with tiny_platform(tmp_path, manifest) as platform:
        await platform.scale(Stage.ROLLOUT, 1, hold_until=time.time() + ALL_NIGHT)

        async def one_is_given_up() -> bool:
            reasons = [life.reason for life in await platform.replicas() if life.ended_at is not None]
            return "not ready within 0.2 s" in reasons

        await until(one_is_given_up)
        assert not (await platform.functions())[0].ready


async def test_another_template_makes_a_new_revision_and_the_old_one_scales_to_zero(tmp_path: Path) -> None:
    scaling = replace(ONE_AT_A_TIME, window_s=0.2, min_scale=1)
    manifests = {"rollout": replace(TINY, scaling=scaling)}
    async with LocalPlatform(tiny_settings(tmp_path), read=lambda folder: dict(manifests)) as platform:
        first = await call(platform)
        manifests["rollout"] = replace(TINY, scaling=scaling, template="2", env={"MODE": "new"})
        platform.apply_manifests()
        await until(lambda: serves(platform, "rollout-00002"))
        second = await call(platform, "env=MODE")
        assert second["value"] == "new"
        assert second["instance"].startswith("rollout-00002-")
        await until(lambda: not runs(first["pid"]))
        platform.apply_manifests()
        [state] = await platform.functions()
        assert [(each.name, each.percent) for each in state.revisions] == [("rollout-00001", 0), ("rollout-00002", 100)]


async def serves(platform: LocalPlatform, revision: str) -> bool:
    return (await platform.functions())[0].revision == revision


async def test_an_annotation_on_a_revision_scales_it(tmp_path: Path) -> None:
    manifest = replace(TINY, scaling=replace(ONE_AT_A_TIME, window_s=0.2))
    async with tiny_platform(tmp_path, manifest) as platform:
        await platform.annotate_revision("rollout-00001", {"autoscaling.knative.dev/min-scale": "2"})
        await ready(platform, 2)
        with pytest.raises(AnnotationRefused, match="must be a whole number"):
            await platform.annotate_revision("rollout-00001", {"autoscaling.knative.dev/min-scale": "two"})
        with pytest.raises(AnnotationRefused, match="only annotations that begin"):
            await platform.annotate_revision("rollout-00001", {"min-scale": "1"})
        with pytest.raises(RevisionUnknown, match="no revision 'rollout-00009'; there are rollout-00001"):
            await platform.annotate_revision("rollout-00009", {})
        await platform.annotate_revision("rollout-00001", {"autoscaling.knative.dev/min-scale": None})
        await ready(platform, 0)
        assert [each.name for each in (await platform.functions())[0].revisions] == ["rollout-00001"]


async def test_a_replica_sees_the_real_gpus_that_are_its_own(tmp_path: Path) -> None:
    manifest = replace(TINY, resources=Resources(num_gpus=1))
    async with tiny_platform(tmp_path, manifest, gpu_devices=("4", "7")) as platform:
        await platform.scale(Stage.ROLLOUT, 2, hold_until=time.time() + ALL_NIGHT)
        calls = [call(platform, "sleep=0.3&env=CUDA_VISIBLE_DEVICES") for _ in range(2)]
        assert sorted([answer["value"] for answer in await asyncio.gather(*calls)]) == ["4", "7"]
