"""What steps leave in the store: lengths, plans, traces; once each, and only of training."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.runs import plan_records, step_records
from controller.runs.initial import initial_head
from controller.runs.length_history import parse_records
from controller.runs.loop import RunLoop
from controller.runs.plan_records import PlanRecord, parse_record
from controller.runs.profiles import read_speed
from controller.runs.step import run_step
from controller.runs.step_records import trace_stays
from controller.runs.trace import TraceRow, TraceStay, TraceStep, decode_step, read_trace
from shared.codec.completion_facts import CompletionFacts
from shared.contracts.completion import SampleId, Stay
from shared.contracts.rollout import DecodeStretch, Operation, RolloutOutputs, WorkItem
from shared.contracts.stage import Purpose, Stage
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world


async def plan_of(world: World, step: int) -> PlanRecord:
    record = parse_record(await world.store.records.plan(RUN, step) or b"")
    assert record is not None
    return record


async def trace_of(world: World) -> list[tuple[TraceStep, tuple[TraceRow, ...]]]:
    records = world.store.records
    stored = [await records.trace(RUN, step) for step in await records.traced_steps(RUN)]
    return list(read_trace(line for data in stored if data for line in decode_step(data).decode().splitlines()))


@in_virtual_time
async def test_each_step_records_the_lengths_of_its_rows_and_evaluation_none(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__test_freq=1, trainer__total_training_steps=4, schedule__length_window=2)
    await world.drive()
    stored = await world.store.records.all_lengths(RUN)
    assert sorted(stored) == [f"train-{row:06d}" for row in range(8)]
    for row, text in stored.items():
        records = parse_records(row, text)
        # 4 steps of 4 rows are two epochs of 8.
        assert [record.epoch for record in records] == [0, 1]
        assert all(len(record.lengths) == 2 and list(record.lengths) == sorted(record.lengths) for record in records)


@in_virtual_time
async def test_the_second_epoch_is_planned_by_the_first(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__total_training_steps=4)
    await world.drive()
    sources = [(await plan_of(world, step)).rounds[0].length_sources for step in range(4)]
    assert sources == [{"default": 4}, {"default": 4}, {"history": 4}, {"history": 4}]
    shares = [line["metrics"]["schedule/lengths/share_known"] for line in await world.history("step")]
    assert shares == [0.0, 0.0, 1.0, 1.0]


@in_virtual_time
async def test_a_step_that_is_repeated_records_the_same(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    head = await initial_head(run)
    first = await run_step(run, head)
    assert await world.store.records.all_lengths(RUN) == {}, "a step that is not the head's records nothing"
    second = await run_step(await world.context(), head)
    assert second.records.lengths == first.records.lengths
    assert sorted(first.records.lengths) == sorted({row.rpartition(".e")[0] for row in drawn(world)})


def drawn(world: World) -> list[str]:
    return [row for call in world.stages.seen(Stage.REWARD) for row in call.inputs.row_uids]


@in_virtual_time
async def test_a_crash_before_the_head_moves_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=0)
    loop = RunLoop(await world.context())
    head = await loop._initialise()
    await run_step(await world.context(), head)
    finished = await world.drive()
    assert finished.step == 3
    once = await make_world(tmp_path / "once", num_heldout=0)
    await once.drive()
    assert await world.store.records.all_lengths(RUN) == await once.store.records.all_lengths(RUN)


@in_virtual_time
async def test_a_plan_is_there_while_its_step_runs_and_says_in_the_end_what_it_took(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    seen: list[PlanRecord] = []

    async def look(instance: str, item: WorkItem) -> None:
        if not seen and item.row_uid.startswith("train"):
            seen.append(await plan_of(world, 0))

    world.stages.rollout.on_item = look
    await world.drive()
    [running] = seen
    assert (running.state, running.rounds[0].measured) == ("running", None)
    for step in range(3):
        record = await plan_of(world, step)
        metrics = (await world.history("step"))[step]["metrics"]
        [round_] = record.rounds
        assert record.state == "done"
        assert round_.measured is not None
        assert round_.measured.time_s > 0
        assert round_.measured.time_error == pytest.approx(metrics["schedule/time_error"])
        assert {one.stage for one in record.holding} == {Stage.ROLLOUT, Stage.REWARD, Stage.LEARNER}
    assert (await plan_of(world, 0)).rounds[0].digest == running.rounds[0].digest


@in_virtual_time
async def test_every_completion_is_in_the_trace(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    await world.drive()
    steps = await trace_of(world)
    assert [step.step for step, _ in steps] == [0, 1, 2]
    for step, rows in steps:
        record = await plan_of(world, step.step)
        assert (step.group_size, step.max_tokens, step.max_num_sequences, step.num_completions) == (2, 20, 4, 8)
        assert [one.plan_digest for one in step.rounds] == [one.digest for one in record.rounds]
        assert {"gen", "reward", "update_actor", "step"} <= step.timings_s.keys()
        assert len({(row.row, row.epoch, row.sample) for row in rows}) == 8
        for row in rows:
            assert 1 <= row.num_tokens <= 20
            assert (row.num_prompt_tokens, row.finish_reason, row.num_migrations) == (2, "stop", 0)
            assert row.actor in range(step.rounds[0].num_actors)
            assert row.estimated_tokens is not None
            [stay] = row.stays
            assert step.rounds[0].began_at <= stay.started_at < stay.ended_at <= step.rounds[0].sampled_at


@in_virtual_time
async def test_rounds_of_a_step_are_told_apart(tmp_path: Path) -> None:
    filtering = {"algorithm__filter_groups__enable": True, "algorithm__filter_groups__max_num_gen_batches": 3}
    world = await make_world(tmp_path, data__train_batch_size=3, trainer__total_training_steps=1, **filtering)
    await world.drive()
    [(step, rows)] = await trace_of(world)
    record = await plan_of(world, 0)
    numbers = [one.round for one in step.rounds]
    assert len(numbers) > 1
    assert numbers == list(range(len(numbers))) == [one.round for one in record.rounds]
    assert {row.round for row in rows} == set(numbers)
    assert step.num_completions == len(rows) == 2 * sum(one.num_groups for one in step.rounds)


@in_virtual_time
async def test_a_trace_can_be_switched_off(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__trace=False)
    await world.drive()
    assert await trace_of(world) == []
    assert (await plan_of(world, 2)).state == "done"


@in_virtual_time
async def test_what_takes_long_for_large_batches_is_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the loop keeps the leases of all runs."""
    beside: dict[str, bool] = {}
    to_thread, is_beside = asyncio.to_thread, False

    async def note_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        def work() -> Any:
            nonlocal is_beside
            is_beside = True
            try:
                return function(*arguments, **named)
            finally:
                is_beside = False

        return await to_thread(work)

    def watch(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def call(*arguments: Any) -> Any:
            beside[name] = is_beside
            return function(*arguments)

        monkeypatch.setattr(module, name, call)

    monkeypatch.setattr(asyncio, "to_thread", note_thread)
    watch(step_records, "schedule_metrics")
    watch(step_records, "encode_step")
    watch(plan_records, "plan_digest")
    world = await make_world(tmp_path, trainer__total_training_steps=1)
    await world.drive()
    assert beside == {"schedule_metrics": True, "encode_step": True, "plan_digest": True}


def facts(*stays: Stay) -> CompletionFacts:
    return CompletionFacts(
        id=SampleId("train-000001.e0", 0),
        prompt_num_tokens=2,
        num_tokens=9,
        finish_reason="stop",
        instance="b",
        started_at=1.0,
        ended_at=4.0,
        stays=stays,
    )


def test_where_a_completion_was_is_told_as_far_as_it_is_known() -> None:
    fields: dict[str, Any] = {"shard": 1, "instance": "a", "first_token_at": 1.5, "num_tokens": 3}
    known = Stay(started_at=1.0, ended_at=2.0, **fields)
    assert trace_stays(facts(known)) == (TraceStay(started_at=1.0, ended_at=2.0, **fields),)
    [unknown] = trace_stays(facts())
    assert (unknown.shard, unknown.instance, unknown.first_token_at, unknown.num_tokens) == (None, "b", None, 9)


@in_virtual_time
async def test_a_step_learns_the_speed_of_its_actors_and_of_the_other_stages(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=0)
    handle = world.stages.rollout.handle

    async def telling(call: Any, context: Any) -> Any:
        outcome = await handle(call, context)
        if call.key.operation == Operation.PROFILE:
            return outcome
        stretch = DecodeStretch(num_steps=100, num_sequences=4.0, context_tokens=40.0, seconds=10.0)
        told: RolloutOutputs = outcome.outputs.model_copy(update={"decode": (stretch,)})
        return replace(outcome, outputs=told)

    world.stages.rollout.handle = telling  # type: ignore[method-assign]
    await world.drive()
    speed = await read_speed(await world.context())
    assert speed is not None
    assert speed.profile.step_seconds(4.0, 40.0) == pytest.approx(0.1, rel=0.2)
    assert speed.stage_s.keys() == {"reward", "update_actor"}
    assert (await plan_of(world, 0)).rounds[0].profile is None
    assert (await plan_of(world, 1)).rounds[0].profile is not None


@in_virtual_time
async def test_evaluation_changes_no_plan(tmp_path: Path) -> None:
    plain = await make_world(tmp_path / "plain", num_heldout=0)
    evaluated = await make_world(tmp_path / "evaluated", trainer__test_freq=1, stages={"s_per_token": 0.1})
    for world in (plain, evaluated):
        await world.drive()
    assert len(evaluated.stages.seen(Stage.ROLLOUT, Purpose.EVAL)) > 3
    for step in range(3):
        first, second = await plan_of(plain, step), await plan_of(evaluated, step)
        assert first.rounds[0].length_sources == second.rounds[0].length_sources
        assert first.rounds[0].profile == second.rounds[0].profile
