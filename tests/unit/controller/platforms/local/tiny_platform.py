"""A platform that runs tiny functions as real processes."""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.platforms.base import ReplicaLife
from controller.platforms.local.cluster_defaults import LOCAL
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.pacing import Pacing
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.scaling_spec import ScalingSpec
from controller.platforms.local.settings import LocalSettings
from shared.contracts.stage import Stage
from tests.unit.controller.platforms.local.waiting import until

MODULE = "tests.unit.controller.platforms.local.tiny_function"
REPOSITORY = Path(__file__).parents[5]
ONE_AT_A_TIME = ScalingSpec(
    container_concurrency=1,
    utilization=1.0,
    target_burst_capacity=-1,
    window_s=60.0,
    cluster=replace(LOCAL, scale_to_zero_grace_period_s=0.0),
)
HASTY = Pacing(tick_s=0.05, requeue_s=0.05)
TINY = FunctionManifest(
    name="rollout",
    image="tiny",
    command=("python", "-m", MODULE),
    stages=(Stage.ROLLOUT,),
    scaling=ONE_AT_A_TIME,
    readiness_path="/readyz",
    timeout_s=30.0,
    response_start_timeout_s=0.0,
    template="1",
)


def tiny_settings(tmp_path: Path, **changes: Any) -> LocalSettings:
    """Settings for a machine that is large enough."""
    settings = LocalSettings(
        manifests_dir=tmp_path,
        log_dir=tmp_path / "logs",
        num_cpus=8,
        memory_bytes=2**33,
        base_environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)},
        python=sys.executable,
        preload=("asyncio", "json", "urllib.parse"),
        pacing=HASTY,
        stop_grace_s=0.3,
    )
    return replace(settings, **changes)


@asynccontextmanager
async def tiny_platform(tmp_path: Path, *manifests: FunctionManifest, **settings: Any) -> AsyncIterator[LocalPlatform]:
    """A started platform with these functions (one ``rollout`` by default), stopped at the end."""
    functions: Mapping[str, FunctionManifest] = {manifest.name: manifest for manifest in manifests or (TINY,)}
    async with LocalPlatform(tiny_settings(tmp_path, **settings), read=lambda folder: functions) as platform:
        yield platform


async def call(platform: LocalPlatform, query: str = "", *, stage: Stage = Stage.ROLLOUT) -> dict[str, Any]:
    """Call a tiny function and read its answer, which must be 200."""
    reply = await platform.invoke(stage, f"/v1/{stage}?{query}", b"{}", headers={"x-token": "t"}, timeout_s=20.0)
    assert reply.status == 200, reply.body
    answer: dict[str, Any] = json.loads(reply.body)
    return answer


async def living(platform: LocalPlatform) -> list[ReplicaLife]:
    """Lives of the replicas that have not ended."""
    return [life for life in await platform.replicas() if life.ended_at is None]


async def ready(platform: LocalPlatform, num_replicas: int) -> list[ReplicaLife]:
    """Wait until exactly so many are ready and none else lives."""

    async def as_wanted() -> bool:
        lives = await living(platform)
        return len(lives) == num_replicas and all(life.ready_at is not None for life in lives)

    await until(as_wanted)
    return await living(platform)


async def ended(platform: LocalPlatform, instance: str) -> ReplicaLife:
    """Wait until a replica has ended."""

    async def lives() -> dict[str, ReplicaLife]:
        return {life.instance: life for life in await platform.replicas() if life.ended_at is not None}

    async def is_there() -> bool:
        return instance in await lives()

    await until(is_there)
    return (await lives())[instance]


async def is_busy(platform: LocalPlatform) -> bool:
    """Whether a replica of the first function works on a request."""
    return (await platform.functions())[0].num_in_flight > 0
