"""One worker call after another on a batch: everything is sampled once, whoever comes, goes or fails."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from functions.rollout import worker as worker_module
from functions.rollout.engine import SequenceRequest
from functions.rollout.mailbox import Mail
from functions.rollout.worker import sampling_params, worthwhile_room
from shared.codec.completions import encode_partial
from shared.contracts.errors import (
    Cancelled,
    InvalidInput,
    PoisonedItem,
    StaleFence,
    StoreRefused,
    StoreUnavailable,
)
from shared.contracts.rollout import Sampling, WorkItem
from shared.service.stop_flag import StopFlag
from shared.store.base import RunRecord, WorkStore
from shared.store.memory import memory_store
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.unit.functions.rollout.batch_world import BATCH, POLICY, BatchWorld, expected_tokens
from tests.unit.functions.rollout.fake_engine import FakeEngine


def in_memory() -> BatchWorld:
    now_s = [1_700_000_000.0]

    async def let_expire() -> None:
        now_s[0] += 1.0

    return BatchWorld(memory_store(lambda: now_s[0]), let_expire)


@pytest.fixture(params=["memory", "redis"])
def world(request: pytest.FixtureRequest, redis: RedisConnection) -> BatchWorld:
    """The batch on each adapter: for what depends on the store."""
    if request.param == "memory":
        return in_memory()
    return BatchWorld(redis_store(redis), lambda: asyncio.sleep(0.02))


@pytest.fixture
def memory_world() -> BatchWorld:
    """The batch in memory: for what depends on the worker alone."""
    return in_memory()


async def test_a_batch_is_sampled_and_every_completion_says_by_whom(world: BatchWorld) -> None:
    await world.put()
    before = time.time()
    outcome = await world.run(FakeEngine())
    completions = await world.completions()
    assert list(completions) == world.ids
    for id, completion in completions.items():
        assert (completion.id, completion.finish_reason) == (id, "stop")
        np.testing.assert_array_equal(completion.token_ids, expected_tokens(id))
        np.testing.assert_array_equal(completion.rollout_logprobs, np.float32(expected_tokens(id)) / -128)
        np.testing.assert_array_equal(completion.loss_mask, [True] * 4)
        assert (completion.prompt_num_tokens, completion.segments) == (3, (0,))
        assert (completion.policy_version, completion.weights_digest) == (POLICY.version, POLICY.digest)
        assert completion.instance == "rollout-1"
        assert before <= completion.started_at <= completion.ended_at <= time.time()
    assert (outcome.status, outcome.policy_version, outcome.weights_digest) == ("done", 3, POLICY.digest)
    assert outcome.outputs.num_completions == len(world.ids)
    assert outcome.outputs.num_tokens == 4 * len(world.ids)
    assert outcome.outputs.num_resumed == 0
    assert await world.num_left() == 0


async def test_a_batch_without_work_is_done(world: BatchWorld) -> None:
    outcome = await world.run(FakeEngine())
    assert (outcome.status, outcome.outputs.num_completions) == ("done", 0)


async def test_a_second_call_finds_nothing_to_do(world: BatchWorld) -> None:
    await world.put()
    await world.run(FakeEngine())
    engine = FakeEngine()
    assert (await world.run(engine)).outputs.num_completions == 0
    assert engine.num_steps == 0


@pytest.mark.parametrize("max_num_sequences", [1, 2, 3, 4, 7, 12, 100])
async def test_never_more_sequences_at_once_than_allowed(memory_world: BatchWorld, max_num_sequences: int) -> None:
    world, most = memory_world, 0
    engine = FakeEngine(lengths={(row, 0): 9 for row in world.rows}, default_length=3)

    def look() -> None:
        nonlocal most
        most = max(most, engine.num_running)

    engine.on_step = look
    await world.put()
    await world.run(engine, max_num_sequences=max_num_sequences)
    assert most == min(max_num_sequences, len(world.ids))
    assert set(await world.completions()) == set(world.ids)


async def test_a_group_enters_the_engine_together_so_that_its_prompt_is_computed_once(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12 samples of 4 rows, room for 6: one sample of each row ends early, and its place waits for a whole group.
    monkeypatch.setattr(worker_module, "BURST_S", 0.0)
    world = memory_world
    engine = FakeEngine(lengths={(row, 0): 2 for row in world.rows}, default_length=6)
    await world.put()
    await world.run(engine, max_num_sequences=6)
    assert engine.added[0] == [f"row-{row}:{sample}" for row in (0, 1) for sample in range(3)]
    assert all(len({name.split(":")[0] for name in added}) * 3 == len(added) for added in engine.added)


@pytest.mark.parametrize(
    ("num_samples", "max_num_sequences", "room"),
    [(8, 64, 8), (8, 16, 8), (8, 12, 6), (16, 8, 4), (8, 1, 1), (1, 64, 1), (64, 65, 32)],
)
def test_room_worth_filling_is_a_group_but_at_most_half(num_samples: int, max_num_sequences: int, room: int) -> None:
    assert worthwhile_room(num_samples, max_num_sequences) == room


def test_the_engine_is_told_everything_it_draws_by() -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5, min_tokens=2, max_tokens=9, eos_token_ids=(1, 2))
    params = sampling_params(sampling)
    for field in ("temperature", "top_p", "top_k", "min_tokens", "max_tokens", "eos_token_ids"):
        assert getattr(params, field) == getattr(sampling, field)
    assert sampling_params(sampling.model_copy(update={"ignore_eos": True})).eos_token_ids == ()


async def test_what_reaches_max_tokens_ends_there(memory_world: BatchWorld) -> None:
    await memory_world.put()
    await memory_world.run(
        FakeEngine(default_length=99), sampling=Sampling(temperature=1, max_tokens=5, eos_token_ids=(1,))
    )
    for id, completion in (await memory_world.completions()).items():
        assert completion.token_ids.tolist() == expected_tokens(id, 99)[:5]
        assert completion.finish_reason == "length"


async def test_a_worker_takes_its_own_items_first(world: BatchWorld) -> None:
    own, others = world.items()[2:], world.items()[:2]
    await world.put([others, own])
    engine = FakeEngine()
    await world.run(engine, shard=1, max_num_sequences=6)
    assert engine.added[0] == [f"row-{row}:{sample}" for row in (2, 3) for sample in range(3)]


async def test_workers_share_a_batch_and_its_tokens_do_not_tell_who_did_what(world: BatchWorld) -> None:
    world.num_rows = 8
    await world.put()
    engines = [FakeEngine(step_s=0.001), FakeEngine(step_s=0.001)]
    threads = [world.threads, type(world.threads)(max_workers=1)]
    outcomes = await asyncio.gather(
        *(
            world.run(engine, replace(world.context(), executor=thread), shard=shard, max_num_sequences=3)
            for shard, (engine, thread) in enumerate(zip(engines, threads, strict=True))
        )
    )
    completions = await world.completions()
    assert {id: completion.token_ids.tolist() for id, completion in completions.items()} == {
        id: expected_tokens(id) for id in world.ids
    }
    counts = [outcome.outputs.num_completions for outcome in outcomes]
    assert sum(counts) == len(world.ids)
    assert min(counts) > 0


async def test_items_of_a_dead_worker_are_finished_without_its_samples_again(world: BatchWorld) -> None:
    await world.put()
    committed = [*world.ids[:3], world.ids[4]]
    await world.die_with(2, committed=committed)
    engine = FakeEngine()
    outcome = await world.run(engine)
    sampled = {name for added in engine.added for name in added}
    assert sampled == {str(id) for id in world.ids} - {str(id) for id in committed}
    assert outcome.outputs.num_completions == len(world.ids) - len(committed)
    assert await world.store.work.num_samples(BATCH) == len(world.ids)
    assert await world.num_left() == 0


async def test_items_that_are_all_committed_are_only_given_back(world: BatchWorld) -> None:
    await world.put()
    await world.die_with(4, committed=world.ids)
    engine = FakeEngine()
    assert (await world.run(engine, max_num_sequences=3)).outputs.num_completions == 0
    assert engine.num_steps == 0
    assert await world.num_left() == 0


async def test_work_that_others_give_back_is_taken_by_who_has_room(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_AGAIN_S", 0.0)
    world = memory_world
    own, later = world.items()[:1], world.items()[1:]
    await world.put([own, later])
    held = await world.store.work.lease(
        BATCH, shard=1, owner="other", fence=0, ttl_s=60.0, max_items=3, max_deliveries=3
    )
    loop = asyncio.get_running_loop()
    engine = FakeEngine(default_length=30)

    async def give_back() -> None:
        for leased in held.items:
            await world.store.work.return_item(BATCH, owner="other", item=leased.item)

    def look() -> None:
        if engine.num_steps == 3:
            asyncio.run_coroutine_threadsafe(give_back(), loop).result(10)

    engine.on_step = look
    monkeypatch.setattr(worker_module, "BURST_S", 0.0)
    await world.run(engine)
    assert set(await world.completions()) == set(world.ids)


# What ends a call before its work is done.


def after_steps(engine: FakeEngine, num_steps: int, act: Callable[[], Awaitable[None]]) -> None:
    """Do something on the loop once the engine has made so many steps, and let it step on slowly from then on."""
    loop = asyncio.get_running_loop()

    async def awaited() -> None:
        await act()

    def look() -> None:
        if engine.num_steps == num_steps:
            asyncio.run_coroutine_threadsafe(awaited(), loop).result(10)
            engine.step_s = 0.005

    engine.on_step = look


async def check_that_the_rest_is_resumed(world: BatchWorld) -> None:
    """A further call continues from the saved tokens, and the result is what one call would have made."""
    engine = FakeEngine(default_length=4000)
    outcome = await world.run(engine, shard=1, sampling=LONG)
    assert outcome.outputs.num_resumed > 0
    completions = await world.completions()
    assert set(completions) == set(world.ids)
    for id, completion in completions.items():
        length = SHORT if id.sample == 0 else 4000
        assert completion.token_ids.tolist() == expected_tokens(id, length)[:500]


SHORT = 2
LONG = Sampling(temperature=1.0, max_tokens=500, eos_token_ids=(1,))


def long_engine(world: BatchWorld) -> FakeEngine:
    """The first sample of each row is short, the others go on for long."""
    return FakeEngine(lengths={(row, 0): SHORT for row in world.rows}, default_length=4000)


async def test_near_the_deadline_the_rest_is_left_for_another_call(world: BatchWorld) -> None:
    await world.put()
    engine = long_engine(world)
    engine.step_s = 0.001
    context = world.context(deadline_at=time.time() + worker_module.SAVE_S + 0.05)
    outcome = await world.run(engine, context, sampling=LONG)
    assert outcome.status == "continue"
    assert outcome.outputs.num_completions == world.num_rows
    assert engine.num_steps < 500
    await check_that_the_rest_is_resumed(world)


async def test_a_call_that_is_late_already_makes_progress_all_the_same(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put()
    statuses, engine = [], long_engine(world)
    while not statuses or statuses[-1] == "continue":
        outcome = await world.run(engine, world.context(deadline_at=0.0), segment=len(statuses), sampling=LONG)
        statuses.append(outcome.status)
        assert len(statuses) <= 500, "no progress"
    assert set(await world.completions()) == set(world.ids)


async def test_a_cut_ends_the_call_well_and_leaves_the_rest_to_others(world: BatchWorld) -> None:
    await world.put()
    engine = long_engine(world)
    after_steps(engine, 5, lambda: world.store.work.post(BATCH, shard=0, message=Mail.CUT))
    outcome = await world.run(engine, sampling=LONG)
    assert outcome.status == "done"
    assert outcome.outputs.num_completions == world.num_rows
    await check_that_the_rest_is_resumed(world)


async def test_mail_for_another_worker_is_not_opened(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put()
    await world.store.work.post(BATCH, shard=1, message=Mail.CANCEL)
    engine = FakeEngine(default_length=40, step_s=0.003)
    assert (await world.run(engine, shard=0)).outputs.num_completions == len(world.ids)


@pytest.mark.parametrize("by", ["mail", "the call's stop flag"])
async def test_a_cancelled_call_keeps_what_it_has(world: BatchWorld, by: str) -> None:
    await world.put()
    engine, stop = long_engine(world), StopFlag()

    async def cancel() -> None:
        if by == "mail":
            await world.store.work.post(BATCH, shard=None, message=Mail.CANCEL)
        else:
            stop.set("the caller is gone")

    after_steps(engine, 5, cancel)
    with pytest.raises(Cancelled, match="cancel" if by == "mail" else "the caller is gone"):
        await world.run(engine, world.context(stop=stop), sampling=LONG)
    assert len(await world.completions()) == world.num_rows
    if by == "mail":
        await world.store.work.post(BATCH, shard=1, message="carry on")
    await check_that_the_rest_is_resumed(world)


async def test_a_call_that_was_stopped_before_it_began_leaves_everything(memory_world: BatchWorld) -> None:
    world, stop, engine = memory_world, StopFlag(), FakeEngine()
    await world.put()
    stop.set("the caller is gone")
    with pytest.raises(Cancelled):
        await world.run(engine, world.context(stop=stop))
    assert engine.num_steps == 0
    assert await world.num_left() == world.num_rows


async def test_a_damaged_part_is_sampled_again(world: BatchWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.put()
    good, damaged = world.ids[:2]
    tokens = expected_tokens(good)[:2]
    partials = {good: encode_partial(tokens, [token / -128 for token in tokens]), damaged: b"not a part"}
    await world.store.work.save_partials(BATCH, fence=0, partials=partials)
    with caplog.at_level(logging.WARNING):
        outcome = await world.run(FakeEngine())
    assert outcome.outputs.num_resumed == 1
    for id, completion in (await world.completions()).items():
        assert completion.token_ids.tolist() == expected_tokens(id)
        np.testing.assert_array_equal(completion.rollout_logprobs, np.float32(expected_tokens(id)) / -128)
    assert f"the saved part of {damaged} is left out" in caplog.text


# What goes wrong.


async def test_an_item_that_ends_its_worker_every_time_is_named(world: BatchWorld) -> None:
    await world.put()
    for _ in range(3):
        await world.die_with(4)
    engine = FakeEngine()
    with pytest.raises(PoisonedItem) as poisoned:
        await world.run(engine)
    assert poisoned.value.details == {"row_uid": "row-0"}
    assert engine.num_steps == 0


async def test_an_item_with_its_last_chance_goes_alone_and_the_others_follow(world: BatchWorld) -> None:
    await world.put()
    for _ in range(2):
        await world.die_with(4)
    engine = FakeEngine()
    await world.run(engine)
    assert [len(added) for added in engine.added] == [world.num_samples] * world.num_rows
    assert set(await world.completions()) == set(world.ids)


async def test_a_stale_fence_ends_the_call(world: BatchWorld) -> None:
    fence = await own_twice(world)
    await world.put(fence=fence)
    engine = FakeEngine()
    with pytest.raises(StaleFence):
        await world.run(engine, fence=fence - 1)
    assert (engine.num_steps, await world.num_left()) == (0, world.num_rows)


async def test_a_newer_owner_is_noticed_at_the_next_commit(world: BatchWorld) -> None:
    fence = await own_twice(world)
    await world.put(fence=fence)
    engine = FakeEngine(lengths={(row, 0): 50 for row in world.rows}, default_length=100_000)

    async def own() -> None:
        await own_twice(world)

    after_steps(engine, 3, own)
    with pytest.raises(StaleFence):
        await world.run(engine, fence=fence, sampling=Sampling(temperature=1, max_tokens=99_999, eos_token_ids=(1,)))
    assert await world.completions() == {}
    assert await world.num_left() == world.num_rows


async def own_twice(world: BatchWorld) -> int:
    record = RunRecord(id="run-1", state="running", created_at=1.0, updated_at=1.0, config={}, info={})
    if await world.store.runs.get("run-1") is None:
        await world.store.runs.create(record, idempotency_key=None, digest="d")
    owned = [await world.store.runs.acquire("run-1", owner="me", ttl_s=60.0) for _ in range(2)][-1]
    assert owned is not None
    return owned.fence


async def test_a_row_without_a_prompt_is_bad_input(world: BatchWorld) -> None:
    unknown = WorkItem(row_uid="row-99", samples=(0,))
    await world.put([[unknown]])
    with pytest.raises(InvalidInput, match="row-99"):
        await world.run(FakeEngine())
    assert await world.num_left() == world.num_rows + 1


async def test_what_the_engine_cannot_sample_is_bad_input(memory_world: BatchWorld) -> None:
    class Picky(FakeEngine):
        def add(self, requests: Any, params: Any) -> None:
            refused: list[SequenceRequest] = [request for request in requests if request.row_uid == "row-2"]
            if refused:
                raise InvalidInput("the prompt of row row-2 is too long")
            super().add(requests, params)

    world = memory_world
    await world.put()
    with pytest.raises(InvalidInput, match="row-2"):
        await world.run(Picky(default_length=1000), max_num_sequences=6)
    assert await world.num_left() >= 2


class LossyWork:
    """A store of work that fails in one of its operations from some time on."""

    def __init__(self, healthy: WorkStore, operation: str, error: Exception) -> None:
        self._healthy = healthy
        self._error = error
        self.num_failed = 0
        setattr(self, operation, self._fail)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._healthy, name)

    async def _fail(self, *_: object, **__: object) -> object:
        self.num_failed += 1
        await asyncio.sleep(0)
        raise self._error


ERRORS = [
    StaleFence("a newer owner", fence=3),
    StoreRefused("disk full"),
    StoreUnavailable("Redis did not answer"),
    ZeroDivisionError("defect"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operation", ["lease", "committed", "partials", "commit_samples", "finish_item"])
async def test_a_failing_store_ends_the_call_with_its_error(
    memory_world: BatchWorld, operation: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world = memory_world
    await world.put()
    work = LossyWork(world.store.work, operation, error)
    # One group ends at once and the others never: the failure must be noticed while these run.
    engine = FakeEngine(lengths={("row-0", sample): 2 for sample in range(3)}, default_length=10**9)
    context = replace(world.context(), store=replace(world.store, work=work))
    forever = Sampling(temperature=1, max_tokens=10**9, eos_token_ids=(1,))
    with pytest.raises(type(error)) as raised:
        async with asyncio.timeout(30):
            await world.run(engine, context, sampling=forever)
    assert raised.value is error
    assert work.num_failed >= 1
    assert "never retrieved" not in caplog.text
    if not isinstance(error, StoreUnavailable):
        # What is done but could not be given back leaves with its lease.
        num_stuck = int(operation == "finish_item")
        assert await world.num_left(num_held=num_stuck) == world.num_rows - num_stuck


@pytest.mark.parametrize("operation", ["save_partials", "return_item"])
async def test_a_store_that_fails_while_the_rest_is_left_ends_the_call_with_its_error(
    memory_world: BatchWorld, operation: str
) -> None:
    world = memory_world
    await world.put()
    work = LossyWork(world.store.work, operation, StoreUnavailable("Redis did not answer"))
    context = replace(world.context(deadline_at=0.0), store=replace(world.store, work=work))
    engine = long_engine(world)
    engine.step_s = 0.002
    with pytest.raises(StoreUnavailable):
        await world.run(engine, context, sampling=LONG)
    # Not waited for item after item.
    assert work.num_failed == 1


@pytest.mark.parametrize("operation", ["mail", "renew_leases"])
async def test_signs_of_life_and_mail_outlive_a_lost_store(
    memory_world: BatchWorld, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.rollout.leased_work.RENEW_EVERY_S", 0.001)
    monkeypatch.setattr("functions.rollout.mailbox.LOOK_EVERY_S", 0.001)
    world = memory_world
    await world.put()
    work = LossyWork(world.store.work, operation, StoreUnavailable("Redis did not answer"))
    context = replace(world.context(), store=replace(world.store, work=work))
    outcome = await world.run(FakeEngine(default_length=20, step_s=0.002), context)
    assert outcome.outputs.num_completions == len(world.ids)
    assert work.num_failed > 1


async def test_nothing_hides_why_a_call_failed(memory_world: BatchWorld, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeEngine):
        def step(self) -> Any:
            raise ZeroDivisionError("the defect")

        def abort(self) -> Any:
            self._running = []
            raise OSError("and it cannot clean up")

    world = memory_world
    await world.put()
    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError, match="the defect"):
        await world.run(Broken())
    assert "left something behind" in caplog.text


async def test_leases_are_renewed_while_the_engine_computes(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.rollout.leased_work.RENEW_EVERY_S", 0.001)
    world = memory_world
    await world.put()
    stolen: list[int] = []

    async def try_to_steal() -> None:
        for _ in range(10):
            await world.let_leases_expire()
            await asyncio.sleep(0.01)
        stolen.append(await world.num_left(num_held=world.num_rows))

    engine = FakeEngine(default_length=20)
    after_steps(engine, 5, try_to_steal)
    await world.run(engine)
    assert stolen == [0]


async def test_a_cancelled_task_leaves_a_clean_engine_and_free_items(memory_world: BatchWorld) -> None:
    world, engine = memory_world, long_engine(memory_world)
    engine.step_s = 0.001
    await world.put()
    working = asyncio.create_task(world.run(engine, sampling=LONG))
    for _ in range(1000):
        if engine.num_steps:
            break
        await asyncio.sleep(0.001)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await world.num_left() == world.num_rows


async def test_time_is_counted_by_what_it_was_spent_on(memory_world: BatchWorld) -> None:
    world, context = memory_world, memory_world.context()
    await world.put()
    await world.run(FakeEngine(step_s=0.005), context)
    assert context.watch.compute_s >= 4 * 0.005
    assert context.watch.load_s == 0
