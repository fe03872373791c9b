"""Completions, unfinished ones, mail, and the sweep of a batch, on every adapter."""

import asyncio
from dataclasses import replace

import pytest

from shared.contracts.call import BatchKey, CallKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StaleFence
from shared.contracts.rollout import WorkItem
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Granted, Lease, Mail
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.unit.shared.store.conftest import LONG_S, World, run_record

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0)
OTHERS = [
    BATCH.model_copy(update=change)
    for change in ({"run": "run-10"}, {"purpose": Purpose.EVAL}, {"step": 1}, {"step": 10}, {"round": 1})
]
ITEM = WorkItem(row_uid="row", samples=(0, 1))
A, B, C = SampleId("row:with:colons", 0), SampleId("row", 1), SampleId("row", 12)


async def test_completions_come_back_as_they_were_committed(world: World) -> None:
    value = bytes(range(256))
    assert await world.store.work.commit_samples(BATCH, fence=0, samples={A: value, B: b""}) == 2
    assert await world.store.work.samples(BATCH, [B, C, A]) == {A: value, B: b""}
    assert await world.store.work.committed(BATCH, [A, B, C]) == {A, B}
    assert await world.store.work.num_samples(BATCH) == 2


async def test_the_first_commit_of_a_sample_wins_and_only_new_ones_count(world: World) -> None:
    await world.store.work.commit_samples(BATCH, fence=0, samples={A: b"first"})
    assert await world.store.work.commit_samples(BATCH, fence=0, samples={A: b"second", B: b"new"}) == 1
    assert await world.store.work.samples(BATCH, [A, B]) == {A: b"first", B: b"new"}
    assert await world.store.work.num_samples(BATCH) == 2


async def test_racing_commits_of_one_sample_keep_one(world: World) -> None:
    counts = await asyncio.gather(
        *(world.store.work.commit_samples(BATCH, fence=0, samples={A: str(n).encode(), B: b"b"}) for n in range(20))
    )
    assert sum(counts) == 2
    assert await world.store.work.num_samples(BATCH) == 2


async def test_asking_for_nothing_gives_nothing(world: World) -> None:
    work = world.store.work
    assert await work.commit_samples(BATCH, fence=0, samples={}) == 0
    await work.save_partials(BATCH, fence=0, partials={})
    assert await work.samples(BATCH, []) == {}
    assert await work.partials(BATCH, []) == {}
    assert await work.committed(BATCH, []) == set()
    assert await work.samples(BATCH, [A]) == {}
    assert await work.committed(BATCH, [A]) == set()
    assert await work.num_samples(BATCH) == 0


async def test_an_unfinished_completion_is_replaced_and_is_no_completion(world: World) -> None:
    await world.store.work.save_partials(BATCH, fence=0, partials={A: b"short", B: b"b"})
    await world.store.work.save_partials(BATCH, fence=0, partials={A: b"longer"})
    assert await world.store.work.partials(BATCH, [A, B, C]) == {A: b"longer", B: b"b"}
    assert await world.store.work.num_samples(BATCH) == 0
    assert await world.store.work.committed(BATCH, [A]) == set()


async def test_a_lower_fence_stores_nothing(world: World) -> None:
    await world.run(num_owners=2)
    with pytest.raises(StaleFence):
        await world.store.work.commit_samples(BATCH, fence=1, samples={A: b"a"})
    with pytest.raises(StaleFence):
        await world.store.work.save_partials(BATCH, fence=1, partials={A: b"a"})
    assert await world.store.work.samples(BATCH, [A]) == {}
    assert await world.store.work.partials(BATCH, [A]) == {}
    assert await world.store.work.commit_samples(BATCH, fence=2, samples={A: b"a"}) == 1


async def test_mail_reaches_one_worker_or_all_in_order_and_is_read_on_from_where_one_was(world: World) -> None:
    work = world.store.work
    assert await work.mail(BATCH, shard=0) == Mail((), 0)
    await work.post(BATCH, shard=0, message="cut")
    assert (await work.mail(BATCH, shard=0)).messages == ("cut",)
    first = await work.mail(BATCH, shard=1)
    assert first.messages == ()
    await work.post(BATCH, shard=None, message="cancel ü")
    await work.post(BATCH, shard=1, message='{"a": 1}')
    await work.post(BATCH, shard=11, message="for another")
    assert (await work.mail(BATCH, shard=0)).messages == ("cut", "cancel ü")
    second = await work.mail(BATCH, shard=1, after=first.next)
    assert second.messages == ("cancel ü", '{"a": 1}')
    assert await work.mail(BATCH, shard=1, after=second.next) == Mail((), second.next)


async def test_a_report_replaces_the_one_before_and_a_lower_fence_reports_nothing(world: World) -> None:
    work = world.store.work
    assert await work.progress(BATCH) == {}
    await work.report(BATCH, shard=0, fence=0, progress=b"{}")
    await work.report(BATCH, shard=11, fence=0, progress=b"a")
    await work.report(BATCH, shard=0, fence=0, progress=b"b")
    assert await work.progress(BATCH) == {0: b"b", 11: b"a"}
    await world.run(num_owners=2)
    with pytest.raises(StaleFence):
        await work.report(BATCH, shard=0, fence=1, progress=b"late")
    assert (await work.progress(BATCH))[0] == b"b"


async def test_what_the_workers_of_an_earlier_owner_reported_is_forgotten(world: World) -> None:
    """Their calls have the keys of the next owner's, so their reports would pass for those of its own workers."""
    work = world.store.work
    await work.put_items(BATCH, fence=0, assigned=[[ITEM]], offered=[])
    await work.report(BATCH, shard=0, fence=0, progress=b"a")
    await work.put_items(BATCH, fence=0, assigned=[[ITEM]], offered=[])
    assert await work.progress(BATCH) == {0: b"a"}
    await work.put_items(BATCH, fence=await world.run(num_owners=1), assigned=[[ITEM]], offered=[])
    assert await work.progress(BATCH) == {}


async def fill(world: World, batch: BatchKey) -> None:
    """Leave something of every kind."""
    work = world.store.work
    await work.put_items(batch, fence=0, assigned=[[ITEM], [replace(ITEM, row_uid="other")]], offered=[])
    await work.put_items(batch, fence=1, assigned=[], offered=[])
    await work.lease(batch, shard=0, owner="w", fence=1, ttl_s=LONG_S, max_items=1, max_deliveries=3)
    await work.return_item(batch, owner="w", item=ITEM)
    await work.lease(batch, shard=0, owner="w", fence=1, ttl_s=LONG_S, max_items=1, max_deliveries=3)
    await work.commit_samples(batch, fence=1, samples={A: b"a"})
    await work.save_partials(batch, fence=1, partials={B: b"b"})
    await work.post(batch, shard=0, message="cut")
    await work.report(batch, shard=0, fence=1, progress=b"p")
    key = CallKey(**dict(batch), stage=Stage.ROLLOUT)
    assert await world.store.calls.claim(key, digest="d", owner="w", fence=1, ttl_s=LONG_S) == Granted()
    await world.store.calls.commit(key, owner="w", fence=1, reply=b"r")


async def is_empty(world: World, batch: BatchKey) -> bool:
    work = world.store.work
    key = CallKey(**dict(batch), stage=Stage.ROLLOUT)
    return (
        await work.samples(batch, [A]) == {}
        and await work.partials(batch, [B]) == {}
        and await work.mail(batch, shard=0) == Mail((), 0)
        and await work.progress(batch) == {}
        and await work.num_queued(batch) == 0
        and await work.lease(batch, shard=0, owner="v", fence=1, ttl_s=LONG_S, max_items=9, max_deliveries=3)
        == Lease((), 0)
        and await world.store.calls.claim(key, digest="other", owner="v", fence=1, ttl_s=LONG_S) == Granted()
    )


async def test_a_sweep_deletes_all_of_the_batch_and_nothing_of_others(world: World) -> None:
    for batch in [BATCH, *OTHERS]:
        await fill(world, batch)
    await world.store.work.sweep(BATCH)
    for batch in OTHERS:
        assert await world.store.work.samples(batch, [A]) == {A: b"a"}
        assert (await world.store.work.mail(batch, shard=0)).messages == ("cut",)
    assert await is_empty(world, BATCH)
    for batch in OTHERS:
        assert not await is_empty(world, batch)
    await world.store.work.sweep(BATCH)
    await world.store.work.sweep(BATCH)


async def test_a_swept_batch_leaves_no_key_in_redis_and_reading_makes_none(redis: RedisConnection) -> None:
    world = World(redis_store(redis), lambda: asyncio.sleep(0))
    await world.store.runs.create(run_record("run-1"), idempotency_key=None, digest="d")
    await fill(world, OTHERS[0])
    before = await redis.keys("")
    await fill(world, BATCH)
    assert len(await redis.keys("")) > len(before) + 7
    await world.store.work.sweep(BATCH)
    assert await redis.keys("") == before
    await world.store.work.lease(BATCH, shard=0, owner="v", fence=1, ttl_s=LONG_S, max_items=9, max_deliveries=3)
    await world.store.work.samples(BATCH, [A])
    await world.store.work.renew_leases(BATCH, owner="v", ttl_s=LONG_S)
    await world.store.work.finish_item(BATCH, owner="v", item=ITEM)
    await world.store.work.sweep(BATCH)
    assert await redis.keys("") == before
