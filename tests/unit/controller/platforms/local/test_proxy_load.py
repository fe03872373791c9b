"""The proxy before real replicas that are killed while they answer: every request is answered once."""

from dataclasses import replace
from pathlib import Path

from scripts.benchmarks.proxy_load import run_load
from tests.unit.controller.platforms.local.tiny_platform import TINY, ready, tiny_platform

ECHO = replace(
    TINY,
    command=("python", "-m", "scripts.benchmarks.echo_function"),
    scaling=replace(TINY.scaling, container_concurrency=32, min_scale=2, max_scale=2),
)

MOST_LOADS = 10


async def test_every_request_is_answered_once_while_replicas_are_killed(tmp_path: Path) -> None:
    preload = ("uvicorn", "uvicorn.loops.auto", "uvicorn.protocols.http.auto")
    async with tiny_platform(tmp_path, ECHO, preload=preload) as platform:
        await ready(platform, 2)
        port = int(platform.url.rpartition(":")[2])
        num_200 = num_502 = 0
        # A kill may hit an idle replica, so several short loads stand for a long one.
        for _ in range(MOST_LOADS):
            result = await run_load(port, ECHO.name, num_in_flight=60, seconds=1.2, kill_every_s=0.3, max_sleep_s=0.2)
            assert result.is_clean, result
            num_200, num_502 = num_200 + result.num_200, num_502 + result.num_502
            if min(num_200, num_502) > 0:
                return
        raise AssertionError(f"{num_200} answers of replicas, {num_502} in place of killed ones")
