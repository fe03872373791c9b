"""What a worker says of its work while it works."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from functions.rollout import decoding as decoding_module
from functions.rollout import progress as progress_module
from functions.rollout.worker import RolloutWorker
from shared.contracts.call import BatchKey
from shared.contracts.errors import StaleFence, StoreRefused, StoreUnavailable
from shared.contracts.rollout import RolloutProgress
from shared.service.handler import CallContext
from shared.store.base import WorkStore
from tests.unit.functions.rollout.batch_world import BATCH, BatchWorld, saved_part, stay
from tests.unit.functions.rollout.fake_engine import LAYOUT, FakeEngine
from tests.unit.functions.rollout.long_rollouts import LONG, SHORT, after_steps

LENGTH = 60


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "REPORT_EVERY_S", 0.002)
    # What ends is told after each step: a look stops the thread in the middle of one.
    monkeypatch.setattr(decoding_module, "BURST_S", 0.0)


class Watched:
    """A run of a worker, and a look at its report after some steps."""

    def __init__(self, world: BatchWorld, engine: FakeEngine, **call: Any) -> None:
        self.world = world
        self.engine = engine
        self.call = {"sampling": LONG, "shard": 1, "segment": 2, **call}
        self.report: RolloutProgress | None = None

    async def look(self) -> None:
        # Long enough for the loop to have told of the steps before.
        await asyncio.sleep(0.05)
        stored = await self.world.store.work.progress(BATCH)
        assert stored.keys() == {1}
        self.report = RolloutProgress.model_validate_json(stored[1])

    async def after(self, num_steps: int) -> RolloutProgress:
        after_steps(self.engine, num_steps, self.look)
        await self.world.run(self.engine, **self.call)
        assert self.report is not None
        return self.report


async def test_it_says_what_runs_what_waits_what_has_ended_and_how_much_room_there_is(world: BatchWorld) -> None:
    engine = FakeEngine(lengths={(row, 0): SHORT for row in world.rows}, default_length=LENGTH, step_s=0.001)
    await world.put([[], world.items()])
    report = await Watched(world, engine, max_num_sequences=6).after(20)
    assert (report.shard, report.segment, report.instance) == (1, 2, "rollout-1")
    # Three rows by two samples are in the engine; the row that waits in the store has no room.
    assert {(one.row_uid, one.sample) for one in report.finished} <= {(row, 0) for row in world.rows}
    assert {one.num_tokens for one in report.finished} == {SHORT}
    assert report.num_done == len(report.finished) >= 2
    assert all(one.sample for one in report.running)
    assert report.num_assigned == report.num_done + len(report.running) + report.num_waiting == len(world.ids)
    assert report.free_slots == max(0, 6 - len(report.running) - report.num_waiting)
    assert all(0 < one.num_tokens <= 20 for one in report.running)
    assert report.context_tokens == sum(3 + one.num_tokens for one in report.running)
    assert (report.max_tokens, report.kv_bytes_per_token) == (LONG.max_tokens, LAYOUT.bytes_per_token)
    assert report.kv_capacity_tokens > 0
    assert report.most_migrations == 0


async def test_at_the_end_there_is_room_and_nothing_waits(memory_world: BatchWorld) -> None:
    world = memory_world
    engine = FakeEngine(lengths={(world.rows[0], 1): LENGTH}, default_length=3, step_s=0.001)
    await world.put()
    report = await Watched(world, engine, max_num_sequences=20).after(30)
    assert [(one.row_uid, one.sample) for one in report.running] == [(world.rows[0], 1)]
    assert 25 <= report.running[0].num_tokens <= 30
    assert (report.num_done, report.num_waiting, report.free_slots) == (11, 0, 19)


async def test_moved_sequences_count_their_moves(memory_world: BatchWorld) -> None:
    world = memory_world
    part = saved_part((8, 9), (-0.5, -0.5), stays=(stay("rollout-8"), stay("rollout-9", num_tokens=2)))
    await world.store.work.save_partials(BATCH, fence=0, partials={world.ids[4]: part})
    await world.put()
    report = await Watched(world, FakeEngine(default_length=LENGTH, step_s=0.001)).after(10)
    assert report.most_migrations == 2
    tokens = {(one.row_uid, one.sample): one.num_tokens for one in report.running}
    assert tokens.pop((world.ids[4].row_uid, world.ids[4].sample)) == 2 + tokens.popitem()[1]


async def test_reports_do_not_grow_with_what_has_ended(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read many times a second, and an actor may finish thousands."""
    world = memory_world
    monkeypatch.setattr(progress_module, "TELL_FINISHED_S", 0.02)
    engine = FakeEngine(lengths={(world.rows[0], 1): LENGTH}, default_length=3, step_s=0.002)
    await world.put()
    work = Reported(world.store.work)
    await world.run(engine, work.seen_by(world))
    told = {(one.row_uid, one.sample) for report in work.reports for one in report.finished}
    assert told == {(id.row_uid, id.sample) for id in world.ids}
    assert [len(report.finished) for report in work.reports if len(report.running) == 1][-1] == 0
    assert work.reports[-1].num_done == work.reports[-1].num_assigned == len(world.ids)


class Reported:
    """A store that notes reports, or fails to."""

    def __init__(self, healthy: WorkStore, error: Exception | None = None) -> None:
        self.reports: list[RolloutProgress] = []
        self._healthy = healthy
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._healthy, name)

    async def report(self, batch: BatchKey, *, progress: bytes, **arguments: Any) -> None:
        self.reports.append(RolloutProgress.model_validate_json(progress))
        if self._error is not None:
            raise self._error

    def seen_by(self, world: BatchWorld) -> CallContext:
        """A context in which it is the store."""
        return replace(world.context(), store=replace(world.store, work=self))


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), StoreRefused("full"), StaleFence("late", fence=3)])
async def test_a_report_that_cannot_be_stored_stops_nothing(memory_world: BatchWorld, error: Exception) -> None:
    world = memory_world
    await world.put()
    work = Reported(world.store.work, error)
    await world.run(FakeEngine(step_s=0.01), work.seen_by(world))
    assert len(work.reports) > 1
    assert sorted(await world.completions()) == world.ids


async def test_speed_is_that_of_all_sequences_since_the_report_before(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put()
    work = Reported(world.store.work)
    await world.run(FakeEngine(default_length=30, step_s=0.005), work.seen_by(world))
    times = [report.at for report in work.reports]
    speeds = [report.tokens_per_s for report in work.reports]
    tokens = sum(speed * (now - then) for speed, then, now in zip(speeds[1:], times, times[1:], strict=False))
    # What was sampled after the last report is in none; the two clocks are read one after the other.
    assert 0.5 * 30 * len(world.ids) < tokens < 1.1 * 30 * len(world.ids)


async def test_the_first_report_comes_before_the_first_token(memory_world: BatchWorld) -> None:
    engine = FakeEngine()
    worker = memory_world.worker(engine)
    assert isinstance(worker, RolloutWorker)
    await memory_world.put()
    seen: list[dict[int, bytes]] = []

    async def look() -> None:
        seen.append(await memory_world.store.work.progress(BATCH))

    after_steps(engine, 0, look)
    await worker.run()
    assert seen[0].keys() == {0}
