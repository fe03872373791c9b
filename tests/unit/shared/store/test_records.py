"""Records of steps: what is stored with the head, what is stored beside it, and when it goes, on every adapter."""

import numpy as np
import pytest
from safetensors.numpy import save

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StaleFence
from shared.contracts.stage import Purpose
from shared.store import keys, memory_runs, records, redis_records, redis_runs
from shared.store.memory import memory_store
from shared.store.records import PROFILE_TTL_S, StepRecords
from shared.store.redis_connection import RedisConnection
from tests.unit.shared.store.conftest import Lossy, World

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0)


async def advance(world: World, fence: int, step: int, **fields: object) -> bool:
    """Move the head from ``m{step}`` to the next."""
    expected = None if step == 0 else f"m{step}".encode()
    return await world.store.runs.advance(
        "run-1",
        fence=fence,
        expected=expected,
        manifest=f"m{step + 1}".encode(),
        history={"step": step},
        records=StepRecords(step=step, **fields),  # type: ignore[arg-type]
    )


async def test_nothing_is_recorded_of_a_run_that_has_done_nothing(world: World) -> None:
    kept = world.store.records
    assert await kept.lengths("run-1", ["a"]) == await kept.all_lengths("run-1") == {}
    assert await kept.plan("run-1", 0) is await kept.trace("run-1", 0) is await kept.profile("p") is None
    assert list(await kept.traced_steps("run-1")) == list(await kept.planned_steps("run-1")) == []
    assert await kept.completion_headers(BATCH, [SampleId("a", 0)]) == {}


async def test_records_come_with_the_head(world: World) -> None:
    fence, kept = await world.run(num_owners=1), world.store.records
    assert await advance(world, fence, 0, lengths={"b": "[1]", "a": "[2]"}, plan=b"the plan", trace=b"\x00trace")
    assert await advance(world, fence, 1, lengths={"a": "[3]"})
    assert await kept.all_lengths("run-1") == {"a": "[3]", "b": "[1]"}
    assert await kept.lengths("run-1", ["c", "b"]) == {"b": "[1]"}
    assert await kept.plan("run-1", 0) == b"the plan"
    assert await kept.plan("run-1", 1) is None
    assert await kept.trace("run-1", 0) == b"\x00trace"
    assert list(await kept.traced_steps("run-1")) == [0]


async def test_a_head_that_does_not_move_records_nothing(world: World) -> None:
    old, kept = await world.run(num_owners=1), world.store.records
    fence = await world.run(num_owners=1)
    assert not await advance(world, old, 0, lengths={"a": "[1]"}, plan=b"old", trace=b"old")
    assert await advance(world, fence, 0, lengths={"a": "[2]"}, plan=b"new", trace=b"new")
    assert not await world.store.runs.advance(
        "run-1",
        fence=fence,
        expected=b"another head",
        manifest=b"m9",
        history={},
        records=StepRecords(step=0, lengths={"a": "[3]"}, plan=b"wrong", trace=b"wrong"),
    )
    assert await kept.all_lengths("run-1") == {"a": "[2]"}
    assert (await kept.plan("run-1", 0), await kept.trace("run-1", 0)) == (b"new", b"new")


async def test_the_same_step_again_records_nothing_twice(world: World) -> None:
    fence, kept = await world.run(num_owners=1), world.store.records
    for text in ("first", "again"):
        assert await advance(world, fence, 0, lengths={"a": text}, plan=text.encode(), trace=text.encode())
    assert await kept.all_lengths("run-1") == {"a": "first"}
    assert (await kept.plan("run-1", 0), await kept.trace("run-1", 0)) == (b"first", b"first")


async def test_a_lost_answer_is_asked_for_again_and_counts_once(lossy: Lossy, redis: RedisConnection) -> None:
    world = World(lossy.store, lambda: pytest.fail("nothing expires here"))
    fence = await world.run(num_owners=1)
    lossy.proxy.lose_reply()
    assert await advance(world, fence, 0, trace=b"12345")
    assert lossy.proxy.num_lost == 1
    assert int(await redis.command("GET", keys.trace_bytes("run-1"))) == 5


async def test_the_oldest_traces_make_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory_runs, redis_runs):
        monkeypatch.setattr(module, "TRACE_BUDGET_BYTES", 10)
    fence, kept = await world.run(num_owners=1), world.store.records
    for step, size in enumerate((4, 4, 4, 1, 100)):
        assert await advance(world, fence, step, trace=bytes(size))
        expected = {0: [0], 1: [0, 1], 2: [1, 2], 3: [1, 2, 3], 4: [4]}[step]
        assert list(await kept.traced_steps("run-1")) == expected
    assert await kept.trace("run-1", 0) is None
    assert await advance(world, fence, 5, trace=bytes(10))
    assert list(await kept.traced_steps("run-1")) == [5]


async def test_a_plan_is_put_while_its_step_runs_and_replaced_when_it_ends(world: World) -> None:
    fence, kept = await world.run(num_owners=1), world.store.records
    for plan in (b"first round", b"both rounds"):
        await kept.put_plan("run-1", 0, fence=fence, plan=plan)
        assert await kept.plan("run-1", 0) == plan
    await kept.put_plan("run-1", 10, fence=fence, plan=b"a later one")
    await kept.put_plan("run-1", 2, fence=fence, plan=b"a later one")
    assert list(await kept.planned_steps("run-1")) == [0, 2, 10]
    await advance(world, fence, 0, plan=b"what came of it")
    assert await kept.plan("run-1", 0) == b"what came of it"


async def test_an_earlier_owner_puts_no_plan(world: World) -> None:
    old, kept = await world.run(num_owners=1), world.store.records
    fence = await world.run(num_owners=1)
    await kept.put_plan("run-1", 0, fence=fence, plan=b"the plan")
    with pytest.raises(StaleFence):
        await kept.put_plan("run-1", 0, fence=old, plan=b"another")
    assert await kept.plan("run-1", 0) == b"the plan"


async def test_a_deleted_run_leaves_no_record(world: World, redis: RedisConnection) -> None:
    fence, kept = await world.run(num_owners=1), world.store.records
    await advance(world, fence, 0, lengths={"a": "[1]"}, plan=b"plan", trace=b"trace")
    await world.store.runs.delete("run-1")
    assert await kept.all_lengths("run-1") == {}
    assert (await kept.plan("run-1", 0), await kept.trace("run-1", 0)) == (None, None)
    assert await redis.keys(keys.prefix("run-1")) == []


async def test_profiles_outlive_runs(world: World) -> None:
    kept = world.store.records
    await kept.put_profile("p", "one")
    await kept.put_profile("p", "two")
    await world.run()
    await world.store.runs.delete("run-1")
    assert await kept.profile("p") == "two"
    assert await kept.profile("q") is None


async def test_profiles_are_forgotten_that_nobody_measures(redis: RedisConnection) -> None:
    now_s = [0.0]
    kept = memory_store(lambda: now_s[0]).records
    await kept.put_profile("p", "one")
    now_s[0] = PROFILE_TTL_S - 1
    assert await kept.profile("p") == "one"
    now_s[0] = PROFILE_TTL_S
    assert await kept.profile("p") is None
    await redis_records.RedisRecords(redis).put_profile("p", "one")
    assert 0 < await redis.command("TTL", keys.profile("p")) <= records.PROFILE_TTL_S


async def test_headers_come_without_the_tokens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_records, "AT_ONCE", 2)
    fence = await world.run(num_owners=1)
    ids = [SampleId("a", sample) for sample in range(5)]
    stored = {
        id: save({"token_ids": np.zeros(1000 + id.sample, dtype=np.int32)}, metadata={"sample": str(id.sample)})
        for id in ids
    }
    await world.store.work.commit_samples(BATCH, fence=fence, samples=stored)
    found = await world.store.records.completion_headers(BATCH, [*ids, SampleId("b", 0)])
    assert set(found) == set(ids)
    for id, header in found.items():
        assert header == stored[id][: len(header)]
        assert len(header) == 8 + int.from_bytes(header[:8], "little")


async def test_what_is_no_safetensors_file_has_a_short_header(world: World) -> None:
    fence = await world.run(num_owners=1)
    damaged = {SampleId("a", 0): b"abc", SampleId("a", 1): b"\xff" * 8, SampleId("a", 2): bytes(9)}
    await world.store.work.commit_samples(BATCH, fence=fence, samples=damaged)
    found = await world.store.records.completion_headers(BATCH, list(damaged))
    assert found == {SampleId("a", 0): b"abc", SampleId("a", 1): b"\xff" * 8, SampleId("a", 2): bytes(8)}


async def test_a_history_can_be_put_before_the_first_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_records, "AT_ONCE", 2)
    old, kept = await world.run(num_owners=1), world.store.records
    fence = await world.run(num_owners=1)
    lengths = {f"row-{number}": f"[{number}]" for number in range(5)}
    with pytest.raises(StaleFence):
        await kept.put_lengths("run-1", fence=old, lengths=lengths)
    assert await kept.all_lengths("run-1") == {}
    await kept.put_lengths("run-1", fence=fence, lengths=lengths)
    await kept.put_lengths("run-1", fence=fence, lengths={})
    assert await kept.all_lengths("run-1") == lengths
