"""Prefix KV on a server that is full, gone or forgetful: skipped and counted, and never a danger to what is needed."""

import json
from collections.abc import Awaitable, Callable

import pytest

from controller.platforms.local.redis_server import RedisServer
from shared.contracts.errors import MissingBlob, StoreUnavailable
from shared.contracts.policy import BlobRef
from shared.store import keys
from shared.store.prefix_kv import PREFIX_KV_TTL_S, PutReport
from shared.store.redis_bytes import RedisBytes
from shared.store.redis_connection import RedisConnection
from shared.store.redis_prefix_kv import RedisPrefixKv
from tests.unit.shared.store.test_prefix_kv import SCOPE, of_version, piece

MIB = 2**20
LARGE = 2**40


def kv_on(redis: RedisConnection, budget_bytes: int = LARGE) -> RedisPrefixKv:
    return RedisPrefixKv(redis, RedisBytes(redis), budget_bytes=budget_bytes)


async def used_bytes(redis: RedisConnection) -> int:
    return int((await redis.command("INFO", "memory"))["used_memory"])


async def test_a_server_that_evicts_nothing_keeps_room_for_what_is_needed(own_redis_server: RedisServer) -> None:
    redis = RedisConnection(own_redis_server.url, password=own_redis_server.password)
    store, limit = kv_on(redis), await used_bytes(redis) + 16 * MIB
    await redis.command("CONFIG", "SET", "maxmemory", limit)
    reports = [await store.put("run-1", SCOPE, [piece(f"{number:04}", MIB + number)]) for number in range(32)]
    num_kept = sum(report.num_refused == 0 for report in reports)
    assert 4 < num_kept < 16
    assert [report.num_refused for report in reports] == [0] * num_kept + [1] * (32 - num_kept)
    # The durable store, on the same server, goes on.
    await redis.command("SET", "needed", b"x" * 2 * MIB)
    assert await store.find("run-1", SCOPE, ["0031-1"]) == {}
    assert set(await store.find("run-1", SCOPE, ["0000-1"])) == {"0000-1"}
    await redis.close()


async def test_what_was_refused_by_the_server_is_not_held_against_the_budget(own_redis_server: RedisServer) -> None:
    redis = RedisConnection(own_redis_server.url, password=own_redis_server.password)
    store = kv_on(redis, budget_bytes=1000)
    await redis.command("CONFIG", "SET", "maxmemory", 1)
    assert await store.put("run-1", SCOPE, [piece("a", 1000)]) == PutReport(0, 0, 1)
    await redis.command("CONFIG", "SET", "maxmemory", 0)
    assert await store.put("run-1", SCOPE, [piece("b", 900)]) == PutReport(2, 900, 0)
    # Nor when it fills up between the budget and the bytes.
    await redis.command("CONFIG", "SET", "maxmemory", await used_bytes(redis) + 100)
    assert await store.put("run-1", SCOPE, [piece("c", 50)]) == PutReport(0, 0, 1)
    await redis.command("CONFIG", "SET", "maxmemory", 0)
    assert await store.put("run-1", SCOPE, [piece("d", 100)]) == PutReport(2, 100, 0)
    await redis.close()


async def test_a_server_that_is_gone_refuses_and_says_so_to_readers(own_redis_server: RedisServer) -> None:
    redis = RedisConnection(own_redis_server.url, password=own_redis_server.password, retry_for_s=0.05)
    store = kv_on(redis)
    await store.put("run-1", SCOPE, [piece("a")])
    handle = (await store.find("run-1", SCOPE, ["a-1"]))["a-1"]
    await own_redis_server.stop()
    assert await store.put("run-1", SCOPE, [piece("b"), piece("c")]) == PutReport(0, 0, 2)
    with pytest.raises(StoreUnavailable):
        await store.find("run-1", SCOPE, ["a-1"])
    with pytest.raises(StoreUnavailable):
        await store.read(handle.blob)
    await redis.close()


async def test_bytes_that_the_server_evicted_are_missing(redis: RedisConnection) -> None:
    store = kv_on(redis)
    await store.put("run-1", SCOPE, [piece("a")])
    handle = (await store.find("run-1", SCOPE, ["a-1"]))["a-1"]
    await redis.command("UNLINK", keys.prefix_kv_bytes(handle.blob.id))
    with pytest.raises(MissingBlob, match="dropped"):
        await store.read(handle.blob)


async def test_everything_ends_by_itself(redis: RedisConnection) -> None:
    await kv_on(redis).put("run-1", SCOPE, [piece("a")])
    kept = await redis.keys("")
    assert len(kept) == 4
    for key in kept:
        assert PREFIX_KV_TTL_S - 60 < await redis.command("TTL", key) <= PREFIX_KV_TTL_S


async def test_a_version_past_its_time_goes_with_the_next_put(redis: RedisConnection) -> None:
    store, old = kv_on(redis), of_version("01")
    await store.put("run-1", old, [piece("a")])
    await redis.command("ZADD", keys.prefix_kv_versions("run-1"), 1, old.weights_digest)
    await store.put("run-1", of_version("02"), [piece("b")])
    assert await store.find("run-1", old, ["a-1"]) == {}
    assert await redis.command("ZCARD", keys.prefix_kv_versions("run-1")) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"block_hash": "b-1"},
        {"scope": SCOPE.model_copy(update={"weights_digest": "0" * 64}).model_dump()},
        {"scope": SCOPE.model_copy(update={"dtype": "bfloat16"}).model_dump()},
        {"num_tokens": 0},
    ],
)
async def test_a_handle_that_says_something_else_than_its_key_is_not_believed(
    redis: RedisConnection, change: dict[str, object]
) -> None:
    store = kv_on(redis)
    await store.put("run-1", SCOPE, [piece("a")])
    key = keys.prefix_kv_handles("run-1", SCOPE.weights_digest)
    for field, body in (await redis.command("HGETALL", key)).items():
        await redis.command("HSET", key, field, json.dumps(json.loads(body) | change))
    assert await store.find("run-1", SCOPE, ["a-1"]) == {}


class Interrupted(RedisBytes):
    """Lets something else happen while bytes are on their way."""

    def __init__(self, redis: RedisConnection, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(redis)
        self._meanwhile = meanwhile

    async def put(self, ref: BlobRef, data: bytes | memoryview) -> None:
        await super().put(ref, data)
        await self._meanwhile()


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_what_is_purged_while_it_is_written_leaves_nothing(redis: RedisConnection, is_deleted: bool) -> None:
    other = kv_on(redis)

    async def purge() -> None:
        if is_deleted:
            await other.delete_run("run-1")
        else:
            await other.purge("run-1", keep={"cd" * 32})

    store = RedisPrefixKv(redis, Interrupted(redis, purge), budget_bytes=LARGE)
    assert await store.put("run-1", SCOPE, [piece("a")]) == PutReport(0, 0, 1)
    assert await store.find("run-1", SCOPE, ["a-1", "a-2"]) == {}
    assert await redis.keys("") == []


async def test_bytes_that_are_refused_when_they_come_again_are_not_left_behind(own_redis_server: RedisServer) -> None:
    redis = RedisConnection(own_redis_server.url, password=own_redis_server.password)
    store = kv_on(redis)
    await store.put("run-1", SCOPE, [piece("a", 5000)])
    handle = (await store.find("run-1", SCOPE, ["a-1"]))["a-1"]
    await redis.command("CONFIG", "SET", "maxmemory", await used_bytes(redis) + 4000)
    assert await store.put("run-1", SCOPE, [piece("a", 5000)]) == PutReport(0, 0, 1)
    with pytest.raises(MissingBlob):
        await store.read(handle.blob)
    assert await redis.command("HLEN", keys.prefix_kv_sizes("run-1", SCOPE.weights_digest)) == 0
    await redis.close()
