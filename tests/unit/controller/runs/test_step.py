"""One step: from one head to the next."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.runs.errors import ContractBroken
from controller.runs.initial import initial_head
from controller.runs.manifest import Manifest
from controller.runs.step import run_step
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from tests.fakes.sampled import POLICY
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world


async def first_head(world: World) -> Manifest:
    weights = await world.blobs.put(RUN, 0, "weights", b"w")
    policy = PolicyRef(version=0, model=POLICY.model, weights=weights)
    return Manifest(step=0, data_cursor=0, policy=policy, state=None, run_seed=42, evaluated=(0,))


@in_virtual_time
async def test_a_step_makes_the_next_head(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run, head = await world.context(), await first_head(world)
    outcome = await run_step(run, head)
    after = outcome.manifest
    assert (after.step, after.data_cursor, after.policy.version) == (1, 4, 1)
    assert after.previous_policy == head.policy
    assert after.state is not None
    assert await world.blobs.get(after.policy.weights)
    assert after.packing_plan is not None
    assert after.packing_plan.id in after.kept_blobs()
    assert (after.run_seed, after.evaluated, after.checkpoints) == (42, (0,), ())


@in_virtual_time
async def test_rows_that_were_left_out_are_counted_where_some_may_be(tmp_path: Path) -> None:
    for number, (config, counted) in enumerate([({}, None), ({"data__filter_overlong_prompts": True}, 5.0)]):
        world = await make_world(tmp_path / str(number), **config)
        run = await world.context()
        run = replace(run, prepared=replace(run.prepared, train=replace(run.prepared.train, num_filtered=5)))
        metrics = (await run_step(run, await first_head(world))).metrics
        assert metrics.get("data/num_filtered") == counted


@in_virtual_time
async def test_what_a_tool_did_is_told_where_there_is_one(tmp_path: Path) -> None:
    turns = {"rollout__multi_turn__enable": True, "rollout__multi_turn__tool": "calculator"}
    for config, number in (({}, 0), (turns, 3)):
        world = await make_world(tmp_path / str(number), **config)
        metrics = (await run_step(await world.context(), await first_head(world))).metrics
        assert sum(name.startswith(("num_turns/", "tool_")) for name in metrics) == number


@in_virtual_time
async def test_the_learner_is_given_what_belongs_to_its_version(tmp_path: Path) -> None:
    world = await make_world(tmp_path, rollout__temperature=0.8, actor__optim__lr=0.25, num_threads=3)
    run, head = await world.context(), await first_head(world)
    head = (await run_step(run, head)).manifest
    await run_step(run, head)
    first, second = world.stages.seen(Stage.LEARNER)
    assert (first.inputs.operation.state, second.inputs.operation.state) == (None, head.state)
    assert second.policy == head.policy
    assert second.threads == 3
    update = second.inputs.operation
    assert (update.num_samples, update.temperature, update.optim.lr, update.optim.total_steps) == (2, 0.8, 0.25, 3)
    [part] = update.parts
    assert len(part.scores) == 1
    assert part.prompts.id.startswith(f"{RUN}/000001/")


@in_virtual_time
async def test_a_step_that_is_done_already_is_done_again_without_work_and_with_the_same_end(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    head = await first_head(world)
    first = await run_step(await world.context(), head)
    again_at = world.platform.now()
    second = await run_step(await world.context(), head)
    assert second.manifest == first.manifest
    assert world.platform.now() == again_at


@in_virtual_time
async def test_a_learner_that_makes_a_version_out_of_turn_is_refused(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run, head = await world.context(), await first_head(world)
    publish = world.stages.learner._publish

    async def skip(key: object, model: object, version: int, *rest: object) -> object:
        return await publish(key, model, version + 1, *rest)  # type: ignore[arg-type]

    world.stages.learner._publish = skip  # type: ignore[method-assign, assignment]
    with pytest.raises(ContractBroken, match="learner made version 2 of version 0"):
        await run_step(run, head)


@in_virtual_time
async def test_what_is_measured(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    outcome = await run_step(await world.context(), await first_head(world))
    metrics = outcome.metrics
    assert metrics["reward/num_dropped_groups"] == 0
    assert metrics["schedule/num_actors"] == 2
    assert metrics["timing_s/update_actor"] == pytest.approx(2 + 2, abs=1e-5), "a cold start and the update"
    assert metrics["timing_s/reward"] == pytest.approx(2 + 0.5, abs=1e-5)
    parts = metrics["timing_s/gen"] + metrics["timing_s/reward"] + metrics["timing_s/update_actor"]
    assert parts == pytest.approx(metrics["timing_s/step"])


@in_virtual_time
async def test_every_call_of_a_step_is_timed_by_verls_name(tmp_path: Path) -> None:
    world = await make_world(tmp_path, algorithm__adv_estimator="gae", actor__use_kl_loss=True)
    run = await world.context()
    metrics = (await run_step(run, await initial_head(run))).metrics
    times = {name.removeprefix("timing_s/"): value for name, value in metrics.items() if name.startswith("timing_s/")}
    whole = times.pop("step")
    assert times.keys() == {"gen", "reward", "ref", "values", "adv", "update_critic", "update_actor"}
    assert sum(times.values()) == pytest.approx(whole), "one after another on the same cores"
