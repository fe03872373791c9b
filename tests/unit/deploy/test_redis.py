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
from tests.manifests.tree import BASE, base_documents, documents

PASSWORD = "a password # with 'signs'"
OVERRIDES = "\nbind 127.0.0.1\nport {port}\n"
"""Later lines win: a test's server keeps to its own machine."""
MIB = 2**20


def redis_container(file: str) -> dict[str, Any]:
    [pod] = pods_of(documents(BASE / file))
    return pod.containers[0]


def memory_bytes(file: str) -> int:
    """What the server may hold."""
    [value] = [entry["value"] for entry in redis_container(file)["env"] if entry["name"] == "REDIS_MAXMEMORY"]
    return int(value.removesuffix("mb")) * MIB


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
        assert int((await redis.command("CONFIG", "GET", "maxmemory"))[1]) == memory_bytes(file)
        with pytest.raises(StoreUnavailable, match="REDIS_PASSWORD"):
            await stranger.command("PING")
        await redis.close()
        await stranger.close()


@pytest.mark.parametrize("file", ["redis.yaml", "redis-cache.yaml"])
def test_the_password_is_in_no_argument(file: str, tmp_path: Path) -> None:
    config, arguments = configuration(file, tmp_path)
    assert f'requirepass "{PASSWORD}"' in config
    assert arguments == "-\n"


def test_what_runs_may_keep_fits_the_servers() -> None:
    budgets: dict[str, set[int]] = {}
    for pod in pods_of(base_documents()):
        for entry in pod.containers[0].get("env", ()):
            if entry["name"] in ("RLHFLESS_BLOB_BUDGET_BYTES", "RLHFLESS_PREFIX_KV_BYTES"):
                budgets.setdefault(entry["name"], set()).add(int(entry["value"]))
    [blobs], [prefix_kv] = budgets["RLHFLESS_BLOB_BUDGET_BYTES"], budgets["RLHFLESS_PREFIX_KV_BYTES"]
    assert blobs < memory_bytes("redis.yaml")
    assert prefix_kv < memory_bytes("redis-cache.yaml")


def test_a_rewrite_of_the_file_fits_the_memory_limit() -> None:
    """While it goes on, changed pages are held twice."""
    for file, times in (("redis.yaml", 2), ("redis-cache.yaml", 1)):
        limit = parse_quantity(redis_container(file)["resources"]["limits"]["memory"])
        assert times * memory_bytes(file) <= limit
