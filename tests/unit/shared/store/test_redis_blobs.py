"""The budget of blobs in Redis, and what a put that was cut off leaves."""

import pytest

from shared.contracts.errors import MissingBlob, StoreRefused
from shared.store import keys
from shared.store.blobs import make_ref
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_connection import RedisConnection


def blobs_of(redis: RedisConnection) -> RedisBlobs:
    return RedisBlobs(redis, budget_bytes=100, chunk_bytes=10)


async def test_over_its_budget_a_run_is_refused_and_keeps_what_it_has(redis: RedisConnection) -> None:
    blobs = blobs_of(redis)
    first = await blobs.put("run-1", 0, "weights", b"a" * 60)
    await blobs.put("run-1", 0, "weights", b"a" * 60)
    exact = await blobs.put("run-1", 1, "weights", b"b" * 40)
    before = await redis.keys("")
    with pytest.raises(StoreRefused, match="over its budget of 100") as refused:
        await blobs.put("run-1", 2, "weights", b"c")
    assert refused.value.details == {"used_bytes": 101, "budget_bytes": 100}
    assert await redis.keys("") == before
    assert await blobs.get(first) == b"a" * 60
    assert await blobs.get(exact) == b"b" * 40
    await blobs.put("run-2", 0, "weights", b"c" * 100)


async def test_what_is_purged_frees_the_budget(redis: RedisConnection) -> None:
    blobs = blobs_of(redis)
    for step in range(10):
        ref = await blobs.put("run-1", step, "weights", bytes([step]) * 60)
        await blobs.purge("run-1", before_step=step + 1, keep=[])
        with pytest.raises(MissingBlob):
            await blobs.get(ref)
    assert await redis.keys("") == []


async def test_a_put_that_was_cut_off_is_finished_by_the_next_and_counted_once(redis: RedisConnection) -> None:
    blobs, data = blobs_of(redis), bytes(range(95))
    ref = await blobs.put("run-1", 0, "weights", data)
    await redis.command("DEL", keys.blob_chunk("run-1", ref.id, 4))
    with pytest.raises(MissingBlob):
        await blobs.get(ref)
    assert await blobs.put("run-1", 0, "weights", data) == ref
    assert await blobs.get(ref) == data


async def test_a_put_that_was_cut_off_is_purged(redis: RedisConnection) -> None:
    blobs, data = blobs_of(redis), bytes(range(95))
    ref = make_ref("run-1", 0, "weights", data)
    await blobs.put("run-1", 0, "weights", data)
    await redis.command("DEL", keys.blob_chunk("run-1", ref.id, 9))
    assert await blobs.purge("run-1", before_step=1, keep=[]) == 1
    assert await redis.keys("") == []


async def test_no_chunk_is_larger_than_its_limit(redis: RedisConnection) -> None:
    await blobs_of(redis).put("run-1", 0, "weights", b"a" * 95)
    chunks = await redis.keys(keys.prefix("run-1") + ":blob:")
    assert len(chunks) == 10
    assert {await redis.command("STRLEN", chunk) for chunk in chunks} == {10, 5}
