"""What the connection makes of a Redis that restarts, is gone, is full or refuses."""

import asyncio
import os
import signal
import traceback

import pytest

from controller.platforms.local.redis_server import RedisServer, free_port
from shared.contracts.call import BatchKey, CallKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Granted
from shared.store.opening import redis_store
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_connection import MAX_CONNECTIONS, RedisConnection

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0)


def kill(server: RedisServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


async def test_many_more_commands_than_connections_all_succeed(redis: RedisConnection) -> None:
    num_commands = 8 * MAX_CONNECTIONS
    assert sorted(await asyncio.gather(*(redis.command("INCR", "counter") for _ in range(num_commands)))) == list(
        range(1, num_commands + 1)
    )


async def test_replies_of_cancelled_commands_reach_nobody_else(redis: RedisConnection) -> None:
    for number in range(100):
        await redis.command("SET", f"key-{number}", str(number) * 1000)
    tasks = [asyncio.create_task(redis.command("GET", f"key-{number}")) for number in range(100)]
    for turn in range(20):
        await asyncio.sleep(0)
        tasks[turn * 5].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() or task.result() == str(n).encode() * 1000 for n, task in enumerate(tasks))
    for number in range(100):
        assert await redis.command("GET", f"key-{number}") == str(number).encode() * 1000


async def test_keys_are_found_by_prefix_literally(redis: RedisConnection) -> None:
    for key in ("a*b", "a*bc", "axb", "a[1]", "a1", "a?", "a\\", "a\\b"):
        await redis.command("SET", key, 1)
    assert await redis.keys("a*b") == ["a*b", "a*bc"]
    assert await redis.keys("a[1]") == ["a[1]"]
    assert await redis.keys("a?") == ["a?"]
    assert await redis.keys("a\\") == ["a\\", "a\\b"]


async def test_a_restart_in_the_middle_loses_nothing_that_was_acknowledged(own_redis_server: RedisServer) -> None:
    server = own_redis_server
    redis = RedisConnection(server.url, password=server.password, retry_for_s=20.0)
    store = redis_store(redis)
    key = CallKey(**dict(BATCH), stage=Stage.ROLLOUT)
    assert await store.calls.claim(key, digest="d", owner="w", fence=0, ttl_s=60.0) == Granted()

    async def write(worker: int) -> None:
        for sample in range(40):
            await store.work.commit_samples(BATCH, fence=0, samples={SampleId(f"row-{worker}", sample): b"c" * 500})
            if (worker, sample) in ((3, 10), (3, 25)):
                kill(server)

    await asyncio.gather(*(write(worker) for worker in range(8)))
    ids = [SampleId(f"row-{worker}", sample) for worker in range(8) for sample in range(40)]
    assert await store.work.samples(BATCH, ids) == dict.fromkeys(ids, b"c" * 500)
    assert await store.calls.commit(key, owner="w", fence=0, reply=b"r") == Granted()
    await redis.close()


async def test_waiting_readers_outlive_a_restart(own_redis_server: RedisServer) -> None:
    server = own_redis_server
    redis = RedisConnection(server.url, password=server.password, retry_for_s=20.0)
    store = redis_store(redis)
    reading = asyncio.create_task(store.events.read("run-1", wait_s=30.0))
    await asyncio.sleep(0.02)
    kill(server)
    await store.events.append("run-1", "step", {"n": 1})
    assert [event.data for event in await reading] == [{"n": 1}]
    await redis.close()


async def test_a_redis_that_stays_away_is_unavailable() -> None:
    redis = RedisConnection(f"redis://127.0.0.1:{free_port()}/0", retry_for_s=0.1)
    for refused in (redis.command("PING"), redis.pipeline([("PING",)]), redis.script("sweep", ["k"], [])):
        with pytest.raises(StoreUnavailable, match="REDIS_URL"):
            await refused
    await redis.close()


async def test_a_redis_that_hangs_is_unavailable(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = RedisConnection(own_redis_server.url, password=own_redis_server.password)
    monkeypatch.setattr("shared.store.redis_connection.COMMAND_TIMEOUT_S", 0.1)
    hasty = RedisConnection(own_redis_server.url, password=own_redis_server.password, retry_for_s=0.2)
    await patient.command("SET", "key", "value")
    assert own_redis_server.pid is not None
    os.kill(own_redis_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            await hasty.command("GET", "key")
    finally:
        os.kill(own_redis_server.pid, signal.SIGCONT)
    assert await patient.command("GET", "key") == b"value"
    await hasty.close()
    await patient.close()


@pytest.mark.parametrize("password", ["wrong-secret", None])
async def test_a_wrong_password_is_told_at_once_and_not_shown(redis_server: RedisServer, password: str | None) -> None:
    redis = RedisConnection(redis_server.url, password=password, retry_for_s=3600.0)
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailable, match="REDIS_PASSWORD") as refused:
            await redis.command("PING")
    shown = "".join(traceback.format_exception(refused.value))
    assert "wrong-secret" not in shown
    assert redis_server.password not in shown
    await redis.close()


@pytest.mark.parametrize(
    "url", ["http://:secret@host", "redis://:sec/ret@host:1", "redis://:secret@host:1:2", "redis://h?db=secret", ""]
)
def test_a_malformed_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="REDIS_URL") as refused:
        RedisConnection(url)
    shown = "".join(traceback.format_exception(refused.value)).partition("ValueError")[2]
    assert "sec" not in shown


async def test_a_full_redis_refuses_and_keeps_what_it_had(own_redis_server: RedisServer) -> None:
    redis = RedisConnection(own_redis_server.url, password=own_redis_server.password)
    store, blobs = redis_store(redis), RedisBlobs(redis, budget_bytes=2**30)
    first, second = SampleId("row", 0), SampleId("row", 1)
    await store.work.commit_samples(BATCH, fence=0, samples={first: b"kept"})
    await redis.command("CONFIG", "SET", "maxmemory", "100kb")
    key = CallKey(**dict(BATCH), stage=Stage.ROLLOUT)
    for refused in (
        store.work.commit_samples(BATCH, fence=0, samples={second: b"too much"}),
        store.calls.claim(key, digest="d", owner="w", fence=0, ttl_s=60.0),
        store.events.append("run-1", "step", {}),
        store.work.post(BATCH, shard=None, message="cut"),
        blobs.put("run-1", 0, "weights", b"w" * 100_000),
    ):
        with pytest.raises(StoreRefused, match="out of memory"):
            await refused
    assert await store.work.samples(BATCH, [first, second]) == {first: b"kept"}
    await redis.command("CONFIG", "SET", "maxmemory", "0")
    assert await store.work.commit_samples(BATCH, fence=0, samples={second: b"fits now"}) == 1
    await redis.close()


async def test_a_wrong_command_is_a_bug_and_not_an_outage(redis: RedisConnection) -> None:
    with pytest.raises(Exception, match="unknown command") as failed:
        await redis.command("NOSUCHCOMMAND")
    assert not isinstance(failed.value, StoreUnavailable | StoreRefused)


async def test_scripts_survive_a_server_that_forgot_them(redis: RedisConnection) -> None:
    for _ in range(2):
        await redis.command("SCRIPT", "FLUSH")
        assert await redis.script("sweep", ["nothing"], []) == 0
