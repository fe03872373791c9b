"""The platform with real processes: calls, the functions' environment, manifests, and a clean end."""

import asyncio
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from controller.platforms.base import FunctionUnknown, FunctionUnreachable, Platform
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.proxy import PortInUse
from shared.contracts.stage import Stage
from tests.unit.controller.platforms.local.tiny_platform import (
    TINY,
    call,
    is_busy,
    living,
    ready,
    tiny_platform,
    tiny_settings,
)
from tests.unit.controller.platforms.local.waiting import runs, until

ALL_NIGHT = 3600.0


def children() -> set[psutil.Process]:
    """Processes below this one, also those of fixtures that live as long as the session."""
    return set(psutil.Process().children(recursive=True))


async def test_a_request_at_zero_starts_a_replica(tmp_path: Path) -> None:
    before = time.time()
    async with tiny_platform(tmp_path, environment={"MODE": "test"}) as platform:
        port: Platform = platform
        assert await living(platform) == []
        answer = await call(platform, "env=MODE")
        assert answer["value"] == "test"
        assert answer["method"] == "POST"
        assert answer["path"] == "/v1/rollout"
        assert answer["headers"].items() >= {"host": "rollout", "x-token": "t", "content-length": "2"}.items()
        [life] = await port.replicas()
        assert life.instance == answer["instance"]
        assert life.revision == "rollout-00001"
        assert life.started_at is not None
        assert life.ready_at is not None
        assert before <= life.scheduled_at <= life.started_at <= life.ready_at <= port.now()
        assert port.figures().shared_threads
        [state] = await port.functions()
        assert (state.num_replicas, state.num_ready, state.num_in_flight, state.ready) == (1, 1, 0, True)
        assert state.url == f"{platform.url}/functions/rollout"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("K_SERVICE", "rollout"),
        ("K_CONFIGURATION", "rollout"),
        ("K_REVISION", "rollout-00001"),
        ("OMP_WAIT_POLICY", "PASSIVE"),
        ("SECRET_OF_THE_CONTROLLER", None),
    ],
)
async def test_environment_of_a_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str | None
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CONTROLLER", "x")
    async with tiny_platform(tmp_path) as platform:
        assert (await call(platform, f"env={variable}"))["value"] == value


async def test_an_empty_body_is_a_get(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path) as platform:
        reply = await platform.invoke(Stage.ROLLOUT, "/v1/info", b"", headers={}, timeout_s=20.0)
        assert b'"method": "GET"' in reply.body


async def test_an_answer_that_does_not_come(tmp_path: Path) -> None:
    manifest = replace(TINY, timeout_s=0.5)
    async with tiny_platform(tmp_path, manifest) as platform:
        await call(platform)
        assert (await platform.invoke(Stage.ROLLOUT, "/?sleep=30", b"{}", headers={}, timeout_s=60.0)).status == 504
        with pytest.raises(FunctionUnreachable, match=r"rollout: no answer within 0\.1 s"):
            await platform.invoke(Stage.ROLLOUT, "/?sleep=30", b"{}", headers={}, timeout_s=0.1)
        with pytest.raises(FunctionUnknown, match="serves the stage critic"):
            await platform.invoke(Stage.CRITIC, "/", b"{}", headers={}, timeout_s=1.0)


async def test_a_caller_who_gives_up_is_seen_by_the_function(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path) as platform:
        await call(platform)
        working = asyncio.create_task(call(platform, "sleep=60"))
        await until(lambda: is_busy(platform))
        working.cancel()
        await asyncio.wait([working])
        [life] = await living(platform)
        log = tmp_path / "logs" / f"{life.instance}.log"
        await until(lambda: log.read_text() == "caller left\n")
        assert not await is_busy(platform)


async def test_stop_ends_all_processes_also_busy_ones(tmp_path: Path) -> None:
    others = children()
    async with tiny_platform(tmp_path) as platform:
        answer = await call(platform, "child=60")
        busy = asyncio.create_task(platform.invoke(Stage.ROLLOUT, "/?sleep=60", b"{}", headers={}, timeout_s=60.0))
        await until(lambda: is_busy(platform))
        tree = children() - others
        assert len(tree) >= 2
    assert not any(runs(process.pid) for process in tree)
    assert not runs(answer["children"][0])
    [life] = await platform.replicas()
    assert life.reason == "platform stopped, killed"
    with pytest.raises((FunctionUnreachable, AssertionError)):
        assert (await busy).status == 200


async def test_stop_while_a_replica_starts(tmp_path: Path) -> None:
    (tmp_path / "slow_import.py").write_text("import time; time.sleep(600)")
    settings = tiny_settings(tmp_path)
    path = f"{tmp_path}:{settings.base_environment['PYTHONPATH']}"
    slow = {
        "preload": ("slow_import",),
        "base_environment": {**settings.base_environment, "PYTHONPATH": path},
    }
    others = children()
    async with tiny_platform(tmp_path, **slow) as platform:
        await platform.scale(Stage.ROLLOUT, 1, hold_until=time.time() + ALL_NIGHT)
        await until(lambda: children() > others)
        started = time.monotonic()
    assert time.monotonic() - started < 600
    assert children() == others
    [life] = await platform.replicas()
    assert (life.started_at, life.reason) == (None, "platform stopped")


async def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path / "one") as platform:
        await call(platform)
        port = int(platform.url.rpartition(":")[2])
        before = children()
        with pytest.raises(PortInUse, match=str(port)):
            async with tiny_platform(tmp_path / "two", port=port):
                pass
        assert children() == before


async def test_an_environment_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    manifest = replace(TINY, python_environment="vllm", source="rollout.yaml")
    with pytest.raises(
        ManifestRefused, match=r"rollout.yaml: rlhfless.dev/environment: no environment 'vllm'; known: other"
    ):
        async with tiny_platform(tmp_path, manifest, python_environments={"other": sys.executable}):
            pass


async def test_a_function_may_run_in_another_environment(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    manifest = replace(TINY, python_environment="other")
    async with tiny_platform(tmp_path, manifest, python_environments={"other": str(python)}) as platform:
        await call(platform)
        assert [log.name for log in (tmp_path / "logs").glob("fork-server*")] == ["fork-server-other.log"]


async def test_fields_without_effect_are_named_in_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manifest = replace(TINY, source="rollout.yaml", not_honoured=("spec.a", "spec.b"))
    with caplog.at_level(logging.WARNING, logger="controller.platforms.local.platform"):
        async with tiny_platform(tmp_path, manifest) as platform:
            assert platform.not_honoured == {"rollout": ("spec.a", "spec.b")}
    assert [record.getMessage() for record in caplog.records] == [
        "rollout.yaml: no effect on one machine: spec.a, spec.b"
    ]


async def test_old_lives_and_logs_are_forgotten(tmp_path: Path) -> None:
    async with tiny_platform(tmp_path, num_ended_lives=2, num_ended_logs=1) as platform:
        for _ in range(3):
            await call(platform)
            await platform.release(Stage.ROLLOUT)
            await ready(platform, 0)
        lives = await platform.replicas()
        assert len(lives) == 2
        assert [log.stem for log in (tmp_path / "logs").glob("rollout-*.log")] == [lives[-1].instance]
