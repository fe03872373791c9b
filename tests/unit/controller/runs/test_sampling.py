"""Sampling one batch: every completion is there at the end, or the run fails saying so."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.actor_hold import ActorHold
from controller.runs.errors import StageUnavailable
from controller.runs.sampling import LOST_LEASE_S, publish_prompts, sample_batch
from controller.scheduling.plan import plan_evenly
from controller.scheduling.prefill_choice import PrefillPlan
from shared.contracts.completion import SampleId
from shared.contracts.prompt import PromptBatch
from shared.contracts.rollout import MultiTurn, RolloutOutputs, WorkItem
from shared.contracts.stage import Stage
from shared.service.handler import Outcome
from tests.fakes.paced_rollout import PacedRollout
from tests.fakes.sampled import BATCH, POLICY, PROMPTS, ROWS, SAMPLING, sample
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, SPECS, World, make_world


async def stored(world: World) -> set[SampleId]:
    ids = [SampleId(row, sample) for row in ROWS for sample in range(2)]
    assert await world.store.work.num_samples(BATCH) == len(ids)
    return await world.store.work.committed(BATCH, ids)


@in_virtual_time
async def test_prompts_are_published_once_for_all_stages(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    ref = await publish_prompts(run, BATCH, PROMPTS)
    assert PromptBatch.model_validate_json(await world.blobs.get(ref)).prompts == PROMPTS
    assert ref.id.startswith(f"{RUN}/000000/train-prompts-")
    assert await publish_prompts(run, BATCH, PROMPTS) == ref


@in_virtual_time
async def test_every_actor_gets_a_call_with_its_shard_policy_threads_and_what_to_sample(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_threads=6, trainer__seed=11)
    await sample(world, num_actors=3)
    calls = world.stages.seen(Stage.ROLLOUT)
    assert sorted(call.key.shard for call in calls) == [0, 1, 2]
    for call in calls:
        assert (call.policy, call.threads, call.key.segment) == (POLICY, 2, 0)
        assert call.inputs.sampling == SAMPLING
        assert (call.inputs.run_seed, call.inputs.num_samples, call.inputs.max_num_sequences) == (11, 2, 4)
    assert len(await stored(world)) == 8


@in_virtual_time
async def test_workers_are_told_of_a_tool_and_what_they_made_is_returned(tmp_path: Path) -> None:
    turns = {"rollout__multi_turn__enable": True, "rollout__multi_turn__tool": "calculator"}
    world = await make_world(tmp_path, num_threads=6, rollout__multi_turn__max_turns=3, **turns)
    run = await world.context()
    plan = plan_evenly(ROWS, group_size=2, resources=run.resources, num_actors=3)
    outputs = await sample_batch(run, BATCH, plan, await publish_prompts(run, BATCH, PROMPTS), POLICY, SAMPLING)
    assert {call.inputs.multi_turn for call in world.stages.seen(Stage.ROLLOUT)} == {
        MultiTurn(tool="calculator", max_turns=3)
    }
    assert len(outputs) == len(world.stages.seen(Stage.ROLLOUT))
    assert sum(output.num_completions for output in outputs) == len(await stored(world))


@in_virtual_time
async def test_a_batch_that_is_sampled_already_costs_no_work(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    await sample(world)
    began_at = world.platform.now()
    await sample(world)
    assert world.platform.now() - began_at < 0.1
    assert len(await stored(world)) == 8


@in_virtual_time
async def test_items_that_a_dead_workers_lease_hid_are_sampled_in_another_pass(tmp_path: Path) -> None:
    """Its claim ends before its lease: the worker that follows finds nothing to do and is done."""
    world = await make_world(tmp_path, stages={"s_per_token": 0.19}, rollout__max_num_seqs=2)
    killed: list[str] = []

    async def die_on_the_last(instance: str, item: WorkItem) -> None:
        if item.row_uid == ROWS[-1] and not killed:
            killed.append(instance)
            world.platform.kill(instance)
            await asyncio.sleep(0)

    world.stages.rollout.on_item = die_on_the_last
    await sample(world, num_actors=1)
    assert len(await stored(world)) == 8
    segments = [call.key.segment for call in world.stages.seen(Stage.ROLLOUT)]
    assert segments[0] == 0
    assert segments[-1] == 1, "the test has not met the case that it is about"


@in_virtual_time
async def test_completions_that_stay_missing_fail_the_run_and_say_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await make_world(tmp_path)

    async def do_nothing(call: Any, context: Any) -> Outcome[RolloutOutputs]:
        return Outcome(
            outputs=RolloutOutputs(num_completions=0, num_tokens=0),
            policy_version=0,
            weights_digest=call.policy.digest,
        )

    monkeypatch.setattr(world.stages.rollout, "handle", do_nothing)
    began_at = world.platform.now()
    with pytest.raises(StageUnavailable, match="0 of 8 completions: resume the run"):
        await sample(world)
    assert world.platform.now() - began_at >= LOST_LEASE_S


@in_virtual_time
async def test_a_resumed_batch_takes_over_what_fewer_actors_than_before_have_left(tmp_path: Path) -> None:
    """The owner before had three actors, of which one was stopped; the next one plans a single actor."""
    world = await make_world(tmp_path, stages={"s_per_token": 1.0})
    first = asyncio.create_task(sample(world, num_actors=3))
    await world.stages.first(Stage.ROLLOUT)
    await asyncio.sleep(15)
    first.cancel()
    await asyncio.wait({first})
    assert 0 < await world.store.work.num_samples(BATCH) < 8
    await sample(world, num_actors=1)
    assert len(await stored(world)) == 8


@in_virtual_time
async def test_a_resumed_batch_goes_on_by_a_plan_that_splits_groups_and_prefills_apart(tmp_path: Path) -> None:
    """What is known when a step is repeated is not what was known when it began."""
    world = await make_world(tmp_path, stages={"s_per_token": 1.0})
    first = asyncio.create_task(sample(world))
    await world.stages.first(Stage.ROLLOUT)
    await asyncio.sleep(3)
    first.cancel()
    await asyncio.wait({first})
    run = await world.context()
    plan = plan_evenly(ROWS, group_size=2, resources=run.resources, num_actors=2)
    slices = tuple(
        tuple(WorkItem(row_uid=item.row_uid, samples=(sample,)) for item in items for sample in item.samples)
        for items in plan.assigned
    )
    prefill = PrefillPlan(mode="disaggregated", reason="", prefill_s=1.0, transfer_s=0.5, num_tokens=12)
    await sample_batch(
        run,
        BATCH,
        replace(plan, assigned=slices, prefill=prefill),
        await publish_prompts(run, BATCH, PROMPTS),
        POLICY,
        SAMPLING,
    )
    before, after = world.stages.seen(Stage.ROLLOUT)[0], world.stages.seen(Stage.ROLLOUT)[-1]
    assert (before.inputs.num_samples, before.inputs.prefix_kv) == (2, False)
    assert (after.inputs.num_samples, after.inputs.prefix_kv) == (1, True)
    assert len(await stored(world)) == 8


@in_virtual_time
async def test_an_actor_beside_the_learner_holds_no_replica_of_rollout(tmp_path: Path) -> None:
    """It works the longest, and meanwhile the replicas of rollout go, down to the last."""
    specs = tuple(
        replace(spec, stages=(Stage.LEARNER, Stage.ROLLOUT)) if spec.name == "learner" else spec for spec in SPECS
    )
    world = await make_world(tmp_path, specs=specs)
    lengths = {(row, sample): 4 if row == ROWS[3] else 20 for row in ROWS for sample in range(2)}
    world.stages.rollout.handle = PacedRollout(lengths).handle
    run = await world.context()
    plan = plan_evenly(ROWS, group_size=2, resources=run.resources, num_actors=2)
    items, until = [item for queue in plan.assigned for item in queue], run.platform.now() + 600.0
    plan = replace(plan, assigned=(tuple(items[:3]), tuple(items[3:])), placement=("learner", "anywhere"))
    await run.platform.scale(Stage.ROLLOUT, 1, hold_until=until)
    hold = ActorHold(run.platform, 1, until=until)
    prompts = await publish_prompts(run, BATCH, PROMPTS)
    await sample_batch(run, BATCH, plan, prompts, POLICY, SAMPLING, hold=hold)
    assert len(await stored(world)) == 8
    assert {call.key.shard for call in world.stages.seen(Stage.ROLLOUT)} == {0, 1}
    [state] = [each for each in await run.platform.functions() if each.name == "rollout"]
    assert state.min_scale == 0


@in_virtual_time
async def test_the_next_owner_calls_supersede_those_that_still_run(tmp_path: Path) -> None:
    world = await make_world(tmp_path, stages={"s_per_token": 1.0})
    first = asyncio.create_task(sample(world))
    await world.stages.first(Stage.ROLLOUT)
    await asyncio.sleep(3)
    await sample(world)
    assert len(await stored(world)) == 8
    first.cancel()
    await asyncio.wait({first})
