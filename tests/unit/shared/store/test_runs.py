"""Runs: records, ownership, head and history, on every adapter."""

import asyncio
from dataclasses import replace

import pytest

from shared.contracts.call import BatchKey, CallKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import CallConflict
from shared.contracts.stage import Purpose, Stage
from shared.store import keys
from shared.store.base import Granted, Owned, RunRecord
from shared.store.opening import redis_store
from shared.store.redis_blobs import RedisBlobs
from shared.store.redis_connection import RedisConnection
from tests.unit.shared.store.conftest import LONG_S, SHORT_S, World, run_record


async def create(world: World, id: str, key: str | None, digest: str = "d", *, created_at: float = 1.0) -> RunRecord:
    record = run_record(id, created_at=created_at)
    return await world.store.runs.create(record, idempotency_key=key, digest=digest)


# --- records ------------------------------------------------------------------------------------------------------


async def test_a_run_comes_back_as_it_was_created(world: World) -> None:
    record = replace(
        run_record("run-1"), config={"a": {"b": [1, 2.5, None, "ü"]}}, info={"x": 1}, cancel_requested=True
    )
    assert await world.store.runs.create(record, idempotency_key=None, digest="d") == record
    assert await world.store.runs.get("run-1") == record
    assert await world.store.runs.list() == [record]


async def test_what_is_stored_is_a_copy(world: World) -> None:
    config = {"a": [1]}
    await world.store.runs.create(replace(run_record("run-1"), config=config), idempotency_key=None, digest="d")
    config["a"].append(2)
    stored = await world.store.runs.get("run-1")
    assert stored is not None
    assert stored.config == {"a": [1]}


async def test_runs_are_listed_oldest_first(world: World) -> None:
    for id, created_at in (("b", 20.5), ("c", 3.0), ("a", 20.25)):
        await create(world, id, None, created_at=created_at)
    assert [run.id for run in await world.store.runs.list()] == ["c", "a", "b"]


async def test_there_is_nothing_of_a_run_that_is_not(world: World) -> None:
    runs = world.store.runs
    assert await runs.list() == []
    assert await runs.get("run-1") is None
    assert await runs.head("run-1") is None
    assert await runs.history("run-1") == []
    assert await runs.acquire("run-1", owner="a", ttl_s=LONG_S) is None
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) is None
    assert not await runs.transition("run-1", to="running", allowed=["queued"])
    await runs.request_cancel("run-1")
    await runs.relinquish("run-1", owner="a")
    await runs.delete("run-1")
    assert await runs.get("run-1") is None


async def test_the_same_key_and_digest_give_the_same_run(world: World) -> None:
    first = await create(world, "run-1", "key")
    assert await create(world, "run-2", "key") == first
    assert await create(world, "run-3", "other key") == run_record("run-3")
    assert [run.id for run in await world.store.runs.list()] == ["run-1", "run-3"]
    assert await world.store.runs.get("run-2") is None


async def test_the_same_key_with_another_digest_conflicts_and_creates_nothing(world: World) -> None:
    await create(world, "run-1", "key")
    with pytest.raises(CallConflict, match="run-1"):
        await create(world, "run-2", "key", digest="other")
    assert [run.id for run in await world.store.runs.list()] == ["run-1"]
    assert await world.store.runs.get("run-2") is None


async def test_a_deleted_run_frees_its_key_for_any_config(world: World) -> None:
    await create(world, "run-1", "key")
    await world.store.runs.delete("run-1")
    assert (await create(world, "run-2", "key", digest="other")).id == "run-2"
    assert (await create(world, "run-3", "key", digest="other")).id == "run-2"


async def test_racing_posts_with_one_key_make_one_run(world: World) -> None:
    for key in ("fresh", "freed"):
        await create(world, "gone", "freed")
        await world.store.runs.delete("gone")
        made = await asyncio.gather(*(create(world, f"{key}-{number}", key) for number in range(20)))
        assert len({run.id for run in made}) == 1
    assert len(await world.store.runs.list()) == 2


# --- states -------------------------------------------------------------------------------------------------------


async def test_a_transition_needs_an_allowed_state_and_merges_info(world: World) -> None:
    await create(world, "run-1", None)
    runs = world.store.runs
    assert not await runs.transition("run-1", to="paused", allowed=["running", "failed"], info={"step": 9})
    assert await runs.transition("run-1", to="running", allowed=["paused", "queued"], info={"x": {"y": [1]}})
    assert await runs.transition("run-1", to="running", allowed=["running"], info={"step": 2})
    run = await runs.get("run-1")
    assert run is not None
    assert run.state == "running"
    assert run.info == {"step": 2, "x": {"y": [1]}}
    assert run.updated_at > run.created_at


async def test_a_transition_refuses_a_lower_fence(world: World) -> None:
    fence = await world.run(num_owners=2)
    runs = world.store.runs
    assert not await runs.transition("run-1", to="running", allowed=["queued"], fence=fence - 1)
    assert await runs.transition("run-1", to="running", allowed=["queued"], fence=fence)
    assert await runs.transition("run-1", to="queued", allowed=["running"])


async def test_one_of_many_racing_transitions_wins(world: World) -> None:
    await create(world, "run-1", None)
    won = await asyncio.gather(
        *(world.store.runs.transition("run-1", to=f"state-{n}", allowed=["queued"]) for n in range(20))
    )
    assert won.count(True) == 1


async def test_a_cancel_request_reaches_the_owner_and_can_be_withdrawn(world: World) -> None:
    await world.run()
    runs = world.store.runs
    await runs.request_cancel("run-1")
    run = await runs.get("run-1")
    assert run is not None
    assert run.cancel_requested
    assert await runs.acquire("run-1", owner="a", ttl_s=LONG_S) == Owned(1, True)
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) == Owned(1, True)
    await runs.request_cancel("run-1", requested=False)
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) == Owned(1, False)


# --- ownership ----------------------------------------------------------------------------------------------------


async def test_fences_rise_with_each_owner_and_a_live_owner_keeps_others_out(world: World) -> None:
    await world.run()
    runs = world.store.runs
    assert await runs.acquire("run-1", owner="a", ttl_s=SHORT_S) == Owned(1, False)
    await world.let_expire()
    assert await runs.acquire("run-1", owner="b", ttl_s=LONG_S) == Owned(2, False)
    assert await runs.acquire("run-1", owner="a", ttl_s=LONG_S) is None
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) is None
    assert await runs.acquire("run-1", owner="b", ttl_s=LONG_S) == Owned(3, False)
    await runs.relinquish("run-1", owner="a")
    assert await runs.acquire("run-1", owner="a", ttl_s=LONG_S) is None
    await runs.relinquish("run-1", owner="b")
    assert await runs.acquire("run-1", owner="a", ttl_s=LONG_S) == Owned(4, False)


async def test_renewing_extends_ownership(world: World) -> None:
    await world.run()
    runs = world.store.runs
    await runs.acquire("run-1", owner="a", ttl_s=SHORT_S)
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) == Owned(1, False)
    await world.let_expire()
    assert await runs.acquire("run-1", owner="b", ttl_s=LONG_S) is None


async def test_an_owner_that_lapsed_goes_on_if_nobody_took_over(world: World) -> None:
    await world.run()
    runs = world.store.runs
    await runs.acquire("run-1", owner="a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) == Owned(1, False)
    assert await runs.acquire("run-1", owner="b", ttl_s=LONG_S) is None


@pytest.mark.parametrize("ends_by", ["relinquishing", "lapsing"])
async def test_an_owner_never_gets_the_fence_of_one_that_came_and_went(world: World, ends_by: str) -> None:
    await world.run()
    runs = world.store.runs
    await runs.acquire("run-1", owner="a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await runs.acquire("run-1", owner="b", ttl_s=SHORT_S) == Owned(2, False)
    if ends_by == "relinquishing":
        await runs.relinquish("run-1", owner="b")
    await world.let_expire()
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) is None
    assert await runs.acquire("run-1", owner="c", ttl_s=LONG_S) == Owned(3, False)


async def test_who_relinquished_is_no_owner(world: World) -> None:
    await world.run()
    runs = world.store.runs
    await runs.acquire("run-1", owner="a", ttl_s=LONG_S)
    await runs.relinquish("run-1", owner="a")
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) is None


async def test_one_of_many_racing_owners_gets_the_run(world: World) -> None:
    await world.run()
    owned = await asyncio.gather(*(world.store.runs.acquire("run-1", owner=f"o{n}", ttl_s=LONG_S) for n in range(50)))
    assert [outcome for outcome in owned if outcome is not None] == [Owned(1, False)]


# --- head and history ---------------------------------------------------------------------------------------------


async def test_the_head_moves_by_compare_and_set_with_one_line_of_history_each(world: World) -> None:
    fence = await world.run(num_owners=1)
    runs = world.store.runs
    assert await runs.advance("run-1", fence=fence, expected=None, manifest=b"\x00v0", history={})
    assert not await runs.advance("run-1", fence=fence, expected=None, manifest=b"other", history={"step": 9})
    assert not await runs.advance("run-1", fence=fence, expected=b"other", manifest=b"v1", history={"step": 9})
    assert await runs.advance("run-1", fence=fence, expected=b"\x00v0", manifest=b"v1", history={"step": 0, "r": [0.5]})
    assert await runs.advance("run-1", fence=fence, expected=b"v1", manifest=b"v2", history={"step": 1})
    assert await runs.head("run-1") == b"v2"
    assert await runs.history("run-1") == [{"step": 0, "r": [0.5]}, {"step": 1}]


async def test_a_repeated_advance_is_true_and_adds_no_second_line(world: World) -> None:
    await world.run(num_owners=1)
    for _ in range(3):
        assert await world.store.runs.advance("run-1", fence=1, expected=None, manifest=b"v1", history={"step": 0})
    assert await world.store.runs.history("run-1") == [{"step": 0}]


async def test_a_lower_fence_moves_no_head(world: World) -> None:
    await world.run(num_owners=2)
    assert not await world.store.runs.advance("run-1", fence=1, expected=None, manifest=b"v1", history={"step": 0})
    assert await world.store.runs.head("run-1") is None
    assert await world.store.runs.history("run-1") == []


async def test_one_of_many_racing_advances_wins(world: World) -> None:
    await world.run(num_owners=1)
    won = await asyncio.gather(
        *(
            world.store.runs.advance("run-1", fence=1, expected=None, manifest=f"m{n}".encode(), history={"n": n})
            for n in range(20)
        )
    )
    assert won.count(True) == 1
    assert await world.store.runs.history("run-1") == [{"n": won.index(True)}]


# --- deletion -----------------------------------------------------------------------------------------------------


async def fill(world: World, id: str) -> None:
    fence = await world.run(id, num_owners=1)
    await world.store.runs.advance(id, fence=fence, expected=None, manifest=b"m", history={"step": 0})
    await world.store.events.append(id, "step", {"step": 0})
    batch = BatchKey(run=id, purpose=Purpose.TRAIN, step=0)
    await world.store.work.commit_samples(batch, fence=fence, samples={SampleId("row", 0): b"c"})
    key = CallKey(**dict(batch), stage=Stage.REWARD)
    assert await world.store.calls.claim(key, digest="d", owner="w", fence=fence, ttl_s=LONG_S) == Granted()


async def test_deleting_a_run_leaves_others_as_they_are(world: World) -> None:
    for id in ("run-1", "run-10", "run"):
        await fill(world, id)
    await world.store.runs.delete("run-1")
    assert [run.id for run in await world.store.runs.list()] == ["run", "run-10"]
    for id, there in (("run-1", False), ("run-10", True), ("run", True)):
        batch = BatchKey(run=id, purpose=Purpose.TRAIN, step=0)
        assert (await world.store.runs.head(id) is not None) == there
        assert len(await world.store.runs.history(id)) == there
        assert len(await world.store.events.read(id)) == there
        assert await world.store.work.num_samples(batch) == there
        assert (await world.store.runs.renew(id, owner="controller", ttl_s=LONG_S) is not None) == there


async def test_a_deleted_run_leaves_no_key_in_redis_even_if_its_owner_goes_on(redis: RedisConnection) -> None:
    world = World(redis_store(redis), lambda: asyncio.sleep(0))
    blobs = RedisBlobs(redis, budget_bytes=100)
    await fill(world, "run-10")
    await blobs.put("run-10", 0, "weights", b"w")
    before = await redis.keys("")
    await fill(world, "run-1")
    await blobs.put("run-1", 0, "weights", b"w")
    assert len(await redis.keys(keys.prefix("run-1"))) >= 10
    await world.store.runs.delete("run-1")
    await world.store.runs.renew("run-1", owner="controller", ttl_s=LONG_S)
    await world.store.runs.acquire("run-1", owner="controller", ttl_s=LONG_S)
    await world.store.runs.transition("run-1", to="failed", allowed=["queued", "running"])
    await world.store.runs.request_cancel("run-1")
    assert await redis.keys("") == before
