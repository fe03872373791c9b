"""What can be asked of schedules: plans and traces of runs, and what a run would take."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.problems import ConfigInvalid
from controller.runs.errors import NotPlannedYet, RunUnknown, StepUnknown
from controller.runs.expectation import Expectation, expectation
from controller.runs.ledger import Price
from controller.runs.past_steps import PastSteps
from controller.runs.profiles import KnownSpeed
from controller.runs.service import RunService
from controller.runs.trace import read_trace
from controller.scheduling.lengths import LengthRecord
from controller.scheduling.plan import PRIOR
from shared.store.records import StepRecords
from tests.fakes.planned import known, prompts_of_epoch
from tests.fakes.stack import Stack, make_stack
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import config_of
from tests.unit.controller.runs.test_stage_figures import life

PRICE = Price(cpu_hour_usd=36.0, gpu_hour_usd=3600.0)


async def traced(service: RunService, run: str, **options: int) -> list[tuple[int, int]]:
    """(step, completions) of the trace."""
    text = b"".join([lines async for lines in await service.trace(run, **options)])
    return [(step.step, len(rows)) for step, rows in read_trace(text.decode().splitlines())]


async def finished(stack: Stack, **overrides: Any) -> tuple[RunService, str]:
    controller = await stack.start()
    run = await stack.submit(controller, **overrides)
    await stack.until(run, "succeeded")
    return controller.service, run


# --- plans and traces ---------------------------------------------------------------------------------------------


@in_virtual_time
async def test_plans_and_traces_of_a_run_are_there_as_long_as_the_run(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service, run = await finished(stack)
    assert [(await service.plan(run, step)).step for step in range(3)] == [0, 1, 2]
    assert (await service.plan(run)).step == 2
    assert await traced(service, run) == [(0, 8), (1, 8), (2, 8)]
    assert await traced(service, run, from_step=2) == [(2, 8)]
    assert await traced(service, run, from_step=99) == []
    await service.delete(run)
    for asked in (service.plan(run, 0), service.plan(run), service.trace(run)):
        with pytest.raises(RunUnknown):
            await asked
    await stack.stop()


@in_virtual_time
async def test_steps_that_are_not_there_are_told_apart_from_those_to_come(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    first = await stack.start()
    run = await stack.submit(first)
    queued = await stack.submit(first)
    for asked in (None, 0, 2):
        with pytest.raises(NotPlannedYet, match="planned"):
            await first.service.plan(queued, asked)
    for step in (3, 10**15):
        with pytest.raises(StepUnknown, match="it has 3 steps, from 0 on"):
            await first.service.plan(queued, step)
    await stack.until(run, "succeeded")
    with pytest.raises(StepUnknown, match="has no step 3"):
        await first.service.plan(run, 3)
    await stack.stop()


@in_virtual_time
async def test_records_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service, run = await finished(stack)
    owned = await stack.store.runs.acquire(run, owner="x", ttl_s=0)
    head = await stack.store.runs.head(run)
    assert owned is not None
    await stack.store.records.put_plan(run, 1, fence=owned.fence, plan=b"{}")
    await stack.store.runs.advance(
        run,
        fence=owned.fence,
        expected=head,
        manifest=b"next",
        history={},
        records=StepRecords(step=1, trace=b"damaged"),
    )
    with pytest.raises(StepUnknown, match="another version"):
        await service.plan(run, 1)
    assert await traced(service, run) == [(0, 8), (2, 8)]
    await stack.stop()


# --- expectations -------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_what_a_run_would_take_is_said_and_nothing_is_started(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    expected = await controller.service.expect(stack.document(), ())
    # Each answer has one token here.
    assert (expected.num_steps, expected.tokens) == (3, 4 * 2)
    assert expected.other_s is None
    # A cold start takes 2 s here.
    assert expected.first_step_s == pytest.approx(2.0 + expected.step_s, abs=0.1)
    assert expected.run_s == pytest.approx(expected.first_step_s + 2 * expected.step_s)
    assert await stack.store.runs.list() == []
    assert await stack.num_replicas() == 0
    assert stack.stages.calls == []
    with pytest.raises(ConfigInvalid):
        await controller.service.expect(stack.document(rollout__n=0), ())
    await stack.stop()


@in_virtual_time
async def test_a_run_that_would_go_on_is_expected_to_be_as_its_checkpoint_was(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service, run = await finished(stack, trainer__save_freq=2)
    [checkpoint] = [one for one in await service.checkpoints(run) if one.step == 2]
    document = stack.document(
        trainer__total_training_steps=5,
        trainer__resume_mode="resume_path",
        trainer__resume_from_path=checkpoint.folder,
    )
    expected = await service.expect(document, ())
    assert expected.num_steps == 3
    assert expected.plan.length_sources.get("history", 0) > 0
    assert any("length history" in line for line in expected.assumptions)
    await stack.stop()


def expected_of(config: dict[str, Any] | None = None, **fields: Any) -> Expectation:
    return expectation(known(**fields), prompts_of_epoch(4), config_of(**(config or {})), num_steps=10, price=PRICE)


def test_a_step_is_expected_by_the_most_and_by_stated_defaults_before_anything_is_known() -> None:
    expected = expected_of()
    assert expected.tokens == 160.0
    assert expected.generation_usd == pytest.approx(expected.generation_unit_s * 36.0 / 3600)
    said = " | ".join(expected.assumptions)
    for part in ("lengths of 4 of 4 prompts: the most that is allowed, 20 tokens", "stated defaults", "usual figure"):
        assert part in said
    assert "learner are left out" in said


def test_what_is_known_is_named_and_used() -> None:
    history = {
        f"train-{row:06d}": (LengthRecord(row_uid=f"train-{row:06d}", epoch=0, lengths=(5, 5)),) for row in range(3)
    }
    speed = KnownSpeed(threads=1, profile=replace(PRIOR, base_s=1.0), stage_s={"reward": 0.5, "update_actor": 0.25})
    expected = expected_of(
        history=history, speed=speed, answers={"train-000003.e0": 7}, lives=(life(0.0, ready_at=2.0),)
    )
    assert expected.tokens == 3 * 2 * 5 + 2 * 7
    assert expected.other_s == {"reward": 22.0, "update_actor": 11.0}
    assert expected.step_s == pytest.approx(expected.generation_s + 33.0)
    assert expected.generation_s > 7.0
    said = " | ".join(expected.assumptions)
    for part in (
        "3 of 4 prompts: the checkpoint",
        "1 of 4 prompts: the length of their ground-truth",
        "stored profile",
    ):
        assert part in said
    assert "cold start of an actor: 2 s, measured" in said
    assert "left out" not in said


def test_lengths_of_an_earlier_run_are_named() -> None:
    said = " | ".join(expected_of(past=PastSteps(mean_tokens=6.0)).assumptions)
    assert "4 of 4 prompts: the mean of an earlier run" in said
    past = PastSteps(mean_tokens=6.0, per_answer_token=2.0)
    expected = expected_of(past=past, answers={f"train-{row:06d}.e0": 3 for row in range(4)})
    assert expected.tokens == 4 * 2 * 6
    assert "answers, times 2, as in an earlier run" in " | ".join(expected.assumptions)


def test_actors_with_gpus_cost_what_gpus_cost() -> None:
    expected = expected_of(lives=(life(0.0, ready_at=2.0, num_gpus=2),))
    assert expected.generation_unit_s == pytest.approx(2 * expected.generation_replica_s)
    assert expected.generation_usd == pytest.approx(expected.generation_unit_s)
    assert json.dumps(expected.assumptions)
