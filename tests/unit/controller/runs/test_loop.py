"""The loop of a run, whole, in virtual time: real loop, real step, real stage protocol; made-up computing."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.platforms.simulated.clock import EPOCH
from controller.runs.errors import RunLost, StageFailed
from controller.runs.loop import RunLoop
from controller.runs.manifest import Manifest
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Store
from tests.fakes.gates import Outage, gated_store
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world, without_folders


async def story(world: World) -> list[str]:
    """What the run's history tells, in order."""
    return [f"{line['kind']} {line['step']}" for line in await world.store.runs.history(RUN)]


def batch(step: int) -> BatchKey:
    return BatchKey(run=RUN, purpose=Purpose.TRAIN, step=step)


@in_virtual_time
async def test_a_run_initialises_evaluates_steps_and_checkpoints_in_this_order(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__total_training_steps=4, trainer__test_freq=2, trainer__save_freq=3)
    head = await world.drive()
    assert await story(world) == [
        "init 0", "eval 0", "step 0", "step 1", "eval 2", "step 2", "checkpoint 3", "step 3", "eval 4", "checkpoint 4",
    ]  # fmt: skip
    assert (head.step, head.policy.version, head.data_cursor, head.evaluated) == (4, 4, 16, (0, 2, 4))
    assert [checkpoint.step for checkpoint in head.checkpoints] == [3, 4]
    assert head == await world.head()


@in_virtual_time
async def test_by_default_only_the_end_is_evaluated_and_checkpointed(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__val_before_train=False)
    await world.drive()
    assert await story(world) == ["init 0", "step 0", "step 1", "step 2", "eval 3", "checkpoint 3"]


@in_virtual_time
async def test_without_held_out_rows_nothing_is_evaluated(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=0)
    await world.drive()
    assert await story(world) == ["init 0", "step 0", "step 1", "step 2", "checkpoint 3"]
    assert not world.stages.seen(Stage.ROLLOUT, Purpose.EVAL)


@in_virtual_time
async def test_every_call_names_the_version_that_its_step_needs(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    head = await world.drive()
    [init] = world.stages.seen(Stage.LEARNER, Purpose.INIT)
    assert init.policy is None
    digests: dict[int, set[str]] = {}
    for purpose in (Purpose.TRAIN, Purpose.EVAL):
        for call in world.stages.seen(Stage.ROLLOUT, purpose):
            assert call.policy is not None
            assert call.policy.version == call.key.step
            digests.setdefault(call.key.step, set()).add(call.policy.digest)
    for call in world.stages.seen(Stage.LEARNER):
        assert call.policy is not None
        assert {call.policy.digest} == digests[call.key.step]
    assert digests[3] == {head.policy.digest}
    assert len(set.union(*digests.values())) == 4


@in_virtual_time
async def test_steps_draw_the_rows_in_the_samplers_order_and_each_group_is_whole(tmp_path: Path) -> None:
    world = await make_world(tmp_path, data__shuffle=False, rollout__n=3)
    await world.drive()
    trained = world.stages.learner.trained
    first, second = [f"train-{row:06d}" for row in range(4)], [f"train-{row:06d}" for row in range(4, 8)]
    assert Counter(id.row_uid for id in trained[0]) == {f"{uid}.e0": 3 for uid in first}
    assert Counter(id.row_uid for id in trained[1]) == {f"{uid}.e0": 3 for uid in second}
    assert Counter(id.row_uid for id in trained[2]) == {f"{uid}.e1": 3 for uid in first}


@in_virtual_time
async def test_the_number_of_actors_changes_neither_a_token_nor_the_result(tmp_path: Path) -> None:
    heads = []
    for num_actors in (1, 3, 4):
        world = await make_world(tmp_path / str(num_actors), rollout__num_actors=num_actors)
        heads.append(without_folders(await world.drive()))
        shards = Counter(call.key.shard for call in world.stages.seen(Stage.ROLLOUT))
        assert shards == dict.fromkeys(range(num_actors), 3)
        instances = {call.instance for call in world.stages.seen(Stage.ROLLOUT)}
        assert len(instances) == num_actors
    assert heads[0] == heads[1] == heads[2]


@in_virtual_time
async def test_the_first_replicas_of_all_stages_start_at_once(tmp_path: Path) -> None:
    world = await make_world(tmp_path, rollout__num_actors=3)
    await world.drive()
    scheduled = Counter((life.function, life.scheduled_at - EPOCH) for life in await world.platform.replicas())
    assert scheduled == {("rollout", 0.0): 3, ("reward", 0.0): 1, ("learner", 0.0): 1}


@in_virtual_time
async def test_a_killed_actor_costs_time_and_nothing_else(tmp_path: Path) -> None:
    undisturbed = await make_world(tmp_path / "a", stages={"s_per_token": 1.0})
    expected = await undisturbed.drive()

    world = await make_world(tmp_path / "b", stages={"s_per_token": 1.0})
    drive = asyncio.create_task(world.drive())
    victim = (await world.stages.first(Stage.ROLLOUT)).instance
    await asyncio.sleep(5)
    world.platform.kill(victim, answered=False)
    head = await drive
    assert without_folders(head) == without_folders(expected)
    assert world.stages.learner.trained == undisturbed.stages.learner.trained
    assert world.lines, "the retry is reported"
    assert victim in world.lines[0]


@pytest.mark.parametrize("stage", [Stage.REWARD, Stage.LEARNER])
@in_virtual_time
async def test_a_killed_reward_or_learner_is_called_again(tmp_path: Path, stage: Stage) -> None:
    expected = await (await make_world(tmp_path / "a")).drive()
    world = await make_world(tmp_path / "b")
    drive = asyncio.create_task(world.drive())
    world.platform.kill((await world.stages.first(stage)).instance)
    assert without_folders(await drive) == without_folders(expected)
    assert [call.attempt for call in world.stages.seen(stage) if call.key.step == 0][-1] >= 1


@in_virtual_time
async def test_work_that_outlasts_a_call_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    expected = await (await make_world(tmp_path / "a")).drive()
    world = await make_world(tmp_path / "b", stages={"s_per_token": 2.5}, rollout__num_actors=1)
    world.call_timeout_s = 60.0
    assert without_folders(await world.drive()) == without_folders(expected)
    segments = [call.key.segment for call in world.stages.seen(Stage.ROLLOUT) if call.key.step == 0]
    assert segments == list(range(len(segments)))
    assert len(segments) > 2
    assert not world.lines, "a continued call is no failed one"


@in_virtual_time
async def test_an_item_that_kills_its_workers_fails_the_run_by_name_and_the_run_resumes(tmp_path: Path) -> None:
    expected = await (await make_world(tmp_path / "a")).drive()
    world = await make_world(tmp_path / "b")
    poisoned = "train-000001.e0"
    deaths = 0

    async def die(instance: str, item: object) -> None:
        nonlocal deaths
        if getattr(item, "row_uid", "") == poisoned:
            deaths += 1
            world.platform.kill(instance)
            await asyncio.sleep(0)

    world.stages.rollout.on_item = die
    with pytest.raises(StageFailed, match=poisoned) as caught:
        await world.drive()
    assert caught.value.code == "poisoned_item"
    assert deaths == 3

    world.stages.rollout.on_item = None
    assert without_folders(await world.drive()) == without_folders(expected)


@in_virtual_time
async def test_the_first_owner_is_told_when_another_has_moved_the_run_on(tmp_path: Path) -> None:
    world = await make_world(tmp_path, stages={"s_per_token": 1.0})
    first = asyncio.create_task(world.drive(owner="first"))
    await asyncio.sleep(6)
    second = asyncio.create_task(world.drive(owner="second"))
    with pytest.raises(RunLost):
        await first
    assert (await second).step == 3
    assert await story(world) == ["init 0", "eval 0", "step 0", "step 1", "step 2", "eval 3", "checkpoint 3"]


class OwnedInBetween:
    """Runs that somebody else owns at the very moment at which a step would end."""

    def __init__(self, store: Store) -> None:
        self._runs = store.runs

    async def advance(self, run: str, *, fence: int, history: Mapping[str, Any], **heads: bytes) -> bool:
        if history["kind"] == "step":
            await self._runs.acquire(run, owner="other", ttl_s=0)
        return await self._runs.advance(run, fence=fence, history=history, **heads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


@in_virtual_time
async def test_a_step_that_ends_after_the_run_was_lost_moves_nothing(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    raced = replace(world.store, runs=OwnedInBetween(world.store))  # type: ignore[arg-type]
    with pytest.raises(RunLost, match="moved on by another owner"):
        await world.drive(store=raced)
    assert await story(world) == ["init 0", "eval 0"]
    assert (await world.head()).step == 0


@in_virtual_time
async def test_a_finished_run_keeps_the_blobs_of_its_head_and_checkpoints_only(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__save_freq=1, trainer__max_ckpt_to_keep=2, num_heldout=0)
    head = await world.drive()
    for step in range(3):
        assert await world.store.work.num_samples(batch(step)) == 0
    kept = head.kept_blobs()
    for ref in [head.policy.weights, head.checkpoints[0].policy.weights]:
        assert await world.blobs.get(ref)
    # Nothing is left to delete but what is kept.
    assert await world.blobs.purge(RUN, before_step=head.step, keep=kept) == 0


@in_virtual_time
async def test_the_next_owner_cleans_what_the_last_one_left(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=0)

    class Left(Exception):
        """The owner ends between a step's head and its cleaning."""

    run = await world.context()
    loop = RunLoop(run)

    async def leave(head: Manifest) -> None:
        if head.step == 1:
            raise Left

    loop._clean_up = leave  # type: ignore[method-assign]
    with pytest.raises(Left):
        await loop.drive()
    assert await world.store.work.num_samples(batch(0)) == 8
    await world.drive()
    assert await world.store.work.num_samples(batch(0)) == 0


@in_virtual_time
async def test_cleaning_that_fails_is_made_up_for_later_and_does_not_fail_the_run(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    lost: list[str] = []

    def lose_sweeps(operation: str, done: bool) -> None:
        if operation == "sweep" and len(lost) < 2 and world.stages.learner.trained:
            lost.append(operation)
            outage(operation, done)

    outage = Outage()
    outage.is_on = True
    await world.drive(store=gated_store(world.store, lose_sweeps))
    assert len(lost) == 2
    for step in range(3):
        assert await world.store.work.num_samples(batch(step)) == 0


@in_virtual_time
async def test_windows_of_the_ledger_tile_the_run(tmp_path: Path) -> None:
    world = await make_world(tmp_path, stages={"s_per_token": 1.0}, trainer__test_freq=1)
    await world.drive()
    history = await world.store.runs.history(RUN)
    ended_at = max(line["time"] for line in history if "ledger" in line)
    held: Counter[str] = Counter()
    split: Counter[str] = Counter()
    for line in history:
        for function, cost in line.get("ledger", {}).items():
            held[function] += cost["cpu_seconds"]
            split[function] += sum(cost[part] for part in ("busy_s", "idle_s", "cold_s", "draining_s"))
            expected_purpose = {"init": "init", "eval": "eval", "step": "train"}[line["kind"]]
            assert cost["purpose"] == expected_purpose
    lives: Counter[str] = Counter()
    for life in await world.platform.replicas():
        lives[life.function] += min(life.ended_at or ended_at, ended_at) - (life.started_at or 0)
    assert set(held) == {"rollout", "reward", "learner"}
    for function, seconds in lives.items():
        assert held[function] == pytest.approx(seconds)
        assert split[function] == pytest.approx(seconds)


@in_virtual_time
async def test_a_steps_times_are_the_stages_and_the_rest_is_plumbing(tmp_path: Path) -> None:
    world = await make_world(tmp_path, rollout__num_actors=1, num_heldout=0)
    await world.drive()
    first, second, _ = [line["metrics"] for line in await world.history("step")]
    for metrics in (first, second):
        stages = [metrics[f"timing_s/{name}"] for name in ("gen", "reward", "update_actor")]
        assert sum(stages) == pytest.approx(metrics["timing_s/step"])
        assert metrics["timing_s/compute/reward"] == pytest.approx(0.5)
        assert metrics["timing_s/compute/learner"] == pytest.approx(2.0)
    assert second["timing_s/plumbing"] == pytest.approx(0.0, abs=1e-6)
    assert second["timing_s/compute/rollout"] == pytest.approx(second["timing_s/gen"])
    assert first["actor/loss"] == 1.0
    assert first["schedule/num_actors"] == 1.0


@in_virtual_time
async def test_what_happens_is_told_as_events(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    await world.drive()
    events = await world.store.events.read(RUN)
    assert [event.kind for event in events if event.kind not in ("progress", "log")] == [
        "eval", "step", "step", "step", "eval", "checkpoint",
    ]  # fmt: skip
    phases = [(event.data["phase"], event.data.get("step")) for event in events if event.kind == "progress"]
    assert phases == [
        ("starting", None), ("evaluating", 0), ("step", 0), ("step", 1), ("step", 2), ("evaluating", 3),
    ]  # fmt: skip
    [step, *_] = [event.data for event in events if event.kind == "step"]
    assert step["replicas"] == {"rollout": 2, "reward": 1, "reference": 0, "critic": 0, "learner": 1}
    assert step["total_steps"] == 3
    assert EPOCH < (await world.history("step"))[0]["time"] < EPOCH + 60
