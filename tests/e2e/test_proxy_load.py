"""A minute of the front door with more than it can do at once, and replicas that die: no request goes missing."""

import asyncio
from pathlib import Path

import pytest

from scripts.benchmarks.http_caller import HttpCaller
from scripts.benchmarks.proxy_load import run_load
from scripts.benchmarks.proxy_platform import FUNCTION, running_platform

SECONDS = 60.0
RSS_GROWTH_MIB = 8.0
"""Over more than 20,000 requests; a leak of 1 KiB for each would be more."""


@pytest.mark.slow
def test_no_request_is_lost_and_memory_stays_flat(tmp_path: Path) -> None:
    async def load() -> None:
        caller = HttpCaller(platform.port, FUNCTION)
        assert (await caller.call("/", b"ready")).body == b"ready"
        caller.close()
        result = await run_load(
            platform.port,
            FUNCTION,
            num_in_flight=500,
            seconds=SECONDS,
            kill_every_s=1.0,
            rss_mib=platform.rss_mib,
        )
        assert result.is_clean, result
        assert result.num_killed > 10
        assert result.num_200 > 20_000
        _, middle, end = result.rss_mib
        assert end - middle < RSS_GROWTH_MIB, result.rss_mib

    with running_platform(tmp_path, num_replicas=8) as platform:
        asyncio.run(load())
