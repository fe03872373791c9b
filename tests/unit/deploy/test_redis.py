"""The Redis servers' start command, run by a shell as in the pod, and what a real server makes of its configuration."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controller.platforms.local.quantities import parse_quantity
from controller.platforms.local.redis_server import find_server, free_port
from shared.contracts.errors import StoreUnavailable
from shared.store.redis_connection import RedisConnection, text
from tests.manifests.pods import pods_of
from tests.manifests.tree import BASE, OVERLAYS, Document, base_documents, built, documents, needs_kubectl

PASSWORD = "a password # with 'signs'"
OVERRIDES = "\nbind 127.0.0.1\nport {port}\n"
"""Later lines win: a test's server keeps to its own machine."""
UNITS = {"mb": 2**20, "gb": 2**30}
"""As Redis reads them."""


def redis_container(file: str) -> dict[str, Any]:
    [pod] = pods_of(documents(BASE / file))
    return pod.containers[0]


def memory_bytes(found: dict[str, Any]) -> int:
    """What the container's server may hold."""
    [value] = [entry["value"] for entry in found["env"] if entry["name"] == "REDIS_MAXMEMORY"]
    return int(value[:-2]) * UNITS[value[-2:]]


def configuration(file: str, folder: Path) -> tuple[str, str]:
    """What the pod's command gives the server by standard input, and by its arguments."""
    (folder / "redis-server").write_text('#!/bin/sh\necho "$@" > "$SEEN/arguments"\ncat > "$SEEN/input"\n')
    (folder / "redis-server").chmod(0o755)
    values = {entry["name"]: entry.get("value", PASSWORD) for entry in redis_container(file)["env"]}
    environment = {**values, "PATH": f"{folder}:{os.environ['PATH']}", "SEEN": str(folder)}
    subprocess.run(redis_container(file)["command"], env=environment, check=True)
    return (folder / "input").read_text(), (folder / "arguments").read_text()


@contextlib.asynccontextmanager
async def running(config: str, folder: Path) -> AsyncIterator[Callable[[str | None], RedisConnection]]:
    """A real server with the configuration; gives a way to connect with a password."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        str(find_server()), "-", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None
    process.stdin.write((config.replace("/data", str(folder)) + OVERRIDES.format(port=port)).encode())
    process.stdin.close()
    try:
        yield lambda password: RedisConnection(f"redis://127.0.0.1:{port}/0", password=password)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("redis.yaml", {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}),
        ("redis-cache.yaml", {"appendonly": "no", "maxmemory-policy": "allkeys-lru", "save": ""}),
    ],
)
async def test_a_server_is_what_the_manifest_says(file: str, expected: dict[str, str], tmp_path: Path) -> None:
    config, _ = configuration(file, tmp_path)
    async with running(config, tmp_path) as connect:
        redis, stranger = connect(PASSWORD), connect(None)
        found = {name: text((await redis.command("CONFIG", "GET", name))[1]) for name in expected}
        assert found == expected
        assert int((await redis.command("CONFIG", "GET", "maxmemory"))[1]) == memory_bytes(redis_container(file))
        with pytest.raises(StoreUnavailable, match="REDIS_PASSWORD"):
            await stranger.command("PING")
        await redis.close()
        await stranger.close()


@pytest.mark.parametrize("file", ["redis.yaml", "redis-cache.yaml"])
def test_the_password_is_in_no_argument(file: str, tmp_path: Path) -> None:
    config, arguments = configuration(file, tmp_path)
    assert f'requirepass "{PASSWORD}"' in config
    assert arguments == "-\n"


def sizes_problems(found: list[Document]) -> list[str]:
    """Where a run may keep more than its server holds, or a server holds more than its pod may have."""
    problems, budgets, servers = [], {}, {}
    for pod in pods_of(found):
        [container, *_] = pod.containers
        for entry in container.get("env", ()):
            if entry["name"] in ("RLHFLESS_BLOB_BUDGET_BYTES", "RLHFLESS_PREFIX_KV_BYTES"):
                budgets.setdefault(entry["name"], set()).add(int(entry["value"]))
        if container["name"] == "redis":
            servers[pod.owner] = container
    for name, server, times in (
        # While the append-only file is rewritten, changed pages are held twice.
        ("RLHFLESS_BLOB_BUDGET_BYTES", "StatefulSet redis", 2),
        ("RLHFLESS_PREFIX_KV_BYTES", "Deployment redis-cache", 1),
    ):
        holds = memory_bytes(servers[server])
        if len(budgets[name]) != 1:
            problems.append(f"{name} differs: {budgets[name]}")
        if max(budgets[name]) >= holds:
            problems.append(f"{name} is {max(budgets[name])}, and {server} holds {holds}")
        if times * holds > parse_quantity(servers[server]["resources"]["limits"]["memory"]):
            problems.append(f"{server} holds {holds}, too much for its limit")
    return problems


def test_what_runs_may_keep_fits_the_servers_and_these_their_pods() -> None:
    assert sizes_problems(base_documents()) == []


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda folder: folder.name)
def test_they_fit_in_every_overlay(overlay: Path) -> None:
    assert sizes_problems(built(overlay)) == []


def test_sizes_that_do_not_fit_are_seen() -> None:
    found = base_documents()
    for pod in pods_of(found):
        for entry in pod.containers[0].get("env", ()):
            if entry["name"] == "REDIS_MAXMEMORY":
                entry["value"] = "512mb" if pod.owner == "StatefulSet redis" else "2gb"
    assert len(sizes_problems(found)) == 2
