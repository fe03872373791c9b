"""What goes wrong in a worker call: the error is the first one, the engine is clean, the items are free."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from functions.rollout.engine import SequenceRequest
from shared.contracts.errors import (
    InvalidInput,
    PoisonedItem,
    StaleFence,
    StoreRefused,
    StoreUnavailable,
)
from shared.contracts.rollout import Sampling, WorkItem
from shared.store.base import RunRecord, WorkStore
from tests.unit.functions.rollout.batch_world import BatchWorld
from tests.unit.functions.rollout.fake_engine import FakeEngine
from tests.unit.functions.rollout.long_rollouts import LONG, after_steps, long_engine


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
        def add(self, requests: Any, params: Any, next_turn: Any = None) -> None:
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
