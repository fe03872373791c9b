"""Replicas between two uses: what is decided about them, and what then happens on the platform."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.platforms.base import ReplicaLife
from controller.platforms.simulated.function_spec import FunctionSpec
from controller.runs.context import RunContext
from controller.runs.holding import Holding, decide, load_metrics, others_waited, use_metrics
from controller.runs.past_steps import gap_metric, load_metric, reload_metric
from controller.runs.plan_records import HoldingRecord
from controller.runs.stage_client import CallRecord
from controller.runs.stage_figures import StageFigures
from controller.scheduling.observations import SchedulePolicy
from shared.contracts.call import CallKey
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Purpose, Stage
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, SPECS, World, make_world

FIGURES = StageFigures(cold_start_s=3.0, drain_s=30.0, load_s=2.5, reload_s=0.5, units=1.0)


def decided(**fields: Any) -> HoldingRecord:
    """About rollout on a cluster, at the time 100, where it costs 35 s to let a replica go."""
    whole: dict[str, Any] = {
        "now": 100.0,
        "policy": SchedulePolicy(buffer_s=1.0),
        "gaps_s": (60.0, 80.0),
        "figures": FIGURES,
        "shares_machine": False,
        "is_crowded": False,
        "begins_next": False,
        "is_last": False,
    }
    return decide(Stage.ROLLOUT, **{**whole, **fields})


# --- decisions ----------------------------------------------------------------------------------------------------


def test_a_long_gap_releases_and_starts_again_before_the_shortest_one_ends() -> None:
    record = decided()
    assert (record.decision, record.idle_s, record.predicted_saved_s) == ("release", 70.0, 35.0)
    assert record.prewarm_at == 100.0 + 60.0 - 5.5 - 1.0


def test_a_short_gap_holds() -> None:
    record = decided(gaps_s=(30.0, 40.0))
    assert (record.decision, record.idle_s, record.predicted_saved_s, record.prewarm_at) == ("hold", 35.0, 0.0, None)
    assert decided(gaps_s=(10.0,)).predicted_saved_s == 25.0


def test_without_a_past_the_platform_decides() -> None:
    record = decided(gaps_s=())
    assert (record.decision, record.idle_s, record.prewarm_at) == ("leave", None, None)


def test_after_its_last_use_a_replica_is_released_for_good() -> None:
    record = decided(gaps_s=(1.0,), shares_machine=True, is_last=True)
    assert (record.decision, record.idle_s, record.prewarm_at) == ("release", None, None)


def test_switched_off_nothing_is_held_but_started_in_time() -> None:
    record = decided(gaps_s=(10.0,), policy=SchedulePolicy(holding=False, buffer_s=1.0))
    assert (record.decision, record.prewarm_at) == ("release", 103.5)
    assert decided(policy=SchedulePolicy(holding=False, prewarm=False)).prewarm_at is None


def test_what_the_next_step_begins_on_stays() -> None:
    record = decided(begins_next=True, is_crowded=True)
    assert (record.decision, record.prewarm_at) == ("hold", None)
    assert decided(begins_next=True, is_last=True).decision == "release"


def test_on_one_machine_replicas_stay_unless_others_wait_for_their_room() -> None:
    assert decided(shares_machine=True).decision == "hold"
    assert decided(shares_machine=True, gaps_s=()).decision == "hold"
    crowded = decided(shares_machine=True, is_crowded=True)
    assert (crowded.decision, crowded.prewarm_at) == ("release", 153.5)
    assert decided(gaps_s=(1.0,), is_crowded=True).decision == "release"


def life(function: str, scheduled_at: float = 10.0, **fields: Any) -> ReplicaLife:
    return ReplicaLife(
        instance=InstanceId(function),
        function=function,
        stages=(Stage.LEARNER,),
        revision="r",
        num_cpus=1.0,
        num_gpus=0,
        scheduled_at=scheduled_at,
        **fields,
    )


@pytest.mark.parametrize(
    ("lives", "expected"),
    [
        ([], False),
        ([life("learner", started_at=10.5)], False),
        ([life("learner", started_at=15.0)], True),
        ([life("learner", scheduled_at=1.0, started_at=15.0)], False),
        ([life("rollout", started_at=15.0)], False),
        ([life("learner", reason="unschedulable: 3 of 2 cpus")], True),
        ([life("learner")], False),
        ([life("learner", reason="scaled down", ended_at=12.0)], False),
    ],
)
def test_others_waited_if_one_had_no_place_at_once(lives: list[ReplicaLife], expected: bool) -> None:
    assert others_waited(lives, "rollout", since=5.0) is expected


# --- measuring ----------------------------------------------------------------------------------------------------


def call(
    stage: Stage, sent_at: float, received_at: float, purpose: Purpose = Purpose.TRAIN, **fields: float
) -> CallRecord:
    return CallRecord(
        key=CallKey(run=RUN, purpose=purpose, step=0, stage=stage),
        instance="a",
        sent_at=sent_at,
        received_at=received_at,
        started_at=sent_at,
        ended_at=received_at,
        **{"load_s": 0.0, "compute_s": 1.0, "replica_started_at": 0.0, "replica_ready_at": 0.0, **fields},
    )


def test_a_gap_is_from_the_last_use_of_one_step_to_the_first_of_the_next() -> None:
    calls = [call(Stage.ROLLOUT, 14.0, 18.0), call(Stage.ROLLOUT, 12.0, 20.0), call(Stage.REWARD, 20.0, 21.0)]
    last = {Stage.ROLLOUT: (Purpose.TRAIN, 10.0)}
    assert use_metrics(calls, last) == {gap_metric(Stage.ROLLOUT): 2.0}
    assert use_metrics(calls, {}) == {}


def test_an_evaluation_between_two_steps_is_no_gap() -> None:
    calls = [call(Stage.ROLLOUT, 12.0, 20.0)]
    assert use_metrics(calls, {Stage.ROLLOUT: (Purpose.EVAL, 10.0)}) == {}
    evaluation = [call(Stage.ROLLOUT, 12.0, 20.0, Purpose.EVAL)]
    assert use_metrics(evaluation, {Stage.ROLLOUT: (Purpose.TRAIN, 10.0)}) == {}


def test_loads_of_new_replicas_are_told_apart_from_those_that_were_there() -> None:
    calls = [
        call(Stage.ROLLOUT, 11.0, 12.0, load_s=0.5, replica_started_at=10.0),
        call(Stage.ROLLOUT, 13.0, 14.0, load_s=0.25, replica_started_at=10.0),
        call(Stage.ROLLOUT, 15.0, 16.0, load_s=0.75, replica_started_at=10.0),
        call(Stage.REWARD, 11.0, 12.0, load_s=0.0, replica_started_at=10.0),
    ]
    fresh = {load_metric(Stage.ROLLOUT): 0.5, reload_metric(Stage.ROLLOUT): 0.75}
    assert load_metrics(calls, set(), since=5.0) == fresh
    assert load_metrics(calls, {"a"}, since=5.0) == {reload_metric(Stage.ROLLOUT): 0.75}
    # They were there before this owner was: who knows what they had loaded.
    assert load_metrics(calls, set(), since=11.0) == {reload_metric(Stage.ROLLOUT): 0.75}


# --- on the platform ----------------------------------------------------------------------------------------------


async def with_gaps(world: World, *gaps_s: float) -> RunContext:
    """A run whose past steps had these gaps of rollout, on a cluster."""
    run = await world.context()
    head: bytes | None = None
    for number, gap_s in enumerate(gaps_s):
        manifest = f"m{number}".encode()
        line = {"kind": "step", "step": number, "metrics": {gap_metric(Stage.ROLLOUT): gap_s}}
        await run.store.runs.advance(RUN, fence=run.fence, expected=head, manifest=manifest, history=line)
        head = manifest
    return replace(run, resources=replace(run.resources, shared_threads=False))


def num_up(lives: Any) -> int:
    return sum(life.function == "rollout" and life.ended_at is None for life in lives)


async def started(run: RunContext, holding: Holding, count: int = 3) -> None:
    await holding.start_actors(count, until=run.platform.now() + 60.0)
    await run.platform.sleep(5.0)
    assert num_up(await run.platform.replicas()) == count


@in_virtual_time
async def test_released_replicas_are_gone_at_once_and_back_before_their_next_use(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await with_gaps(world, 40.0, 50.0)
    holding = Holding(run)
    await started(run, holding)
    await holding.after(Stage.ROLLOUT)
    [record] = holding.decided
    assert record.decision == "release"
    await run.platform.sleep(1.0)
    assert num_up(await run.platform.replicas()) == 0
    # A cold start takes 2 s here, and the buffer is 1 s.
    await run.platform.sleep(35.9)
    assert num_up(await run.platform.replicas()) == 0
    await run.platform.sleep(0.2)
    assert num_up(await run.platform.replicas()) == 3
    await run.platform.sleep(13.0)
    assert num_up(await run.platform.replicas()) == 3
    await holding.close()


@in_virtual_time
async def test_held_replicas_outlast_the_platforms_window(tmp_path: Path) -> None:
    specs = tuple(replace(spec, drain_s=60.0) for spec in SPECS)
    world = await make_world(tmp_path, specs=specs)
    run = await with_gaps(world, 40.0, 50.0)
    holding = Holding(run)
    await started(run, holding)
    await holding.after(Stage.ROLLOUT)
    assert [record.decision for record in holding.decided] == ["hold"]
    await run.platform.sleep(50.5)
    assert num_up(await run.platform.replicas()) == 3
    await run.platform.sleep(120.0)
    assert num_up(await run.platform.replicas()) == 0


@in_virtual_time
async def test_replicas_without_a_past_leave_as_the_platform_lets_them(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await with_gaps(world)
    holding = Holding(run)
    await started(run, holding)
    await holding.after(Stage.ROLLOUT)
    await run.platform.sleep(10.0)
    assert num_up(await run.platform.replicas()) == 3
    await run.platform.sleep(10.0)
    assert num_up(await run.platform.replicas()) == 0


@in_virtual_time
async def test_a_start_that_is_no_longer_wanted_does_not_come(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await with_gaps(world, 40.0)
    holding = Holding(run)
    await started(run, holding)
    await holding.after(Stage.ROLLOUT)
    await run.platform.sleep(1.0)
    await holding.close()
    await run.platform.sleep(60.0)
    assert num_up(await run.platform.replicas()) == 0


@in_virtual_time
async def test_a_stage_without_replicas_has_nothing_to_decide(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    holding = Holding(run)
    for stage in (Stage.ROLLOUT, Stage.PREFILL):
        await holding.after(stage)
    assert holding.decided == ()
    assert await run.platform.replicas() == []


@in_virtual_time
async def test_a_function_of_several_stages_is_decided_about_at_the_steps_end(tmp_path: Path) -> None:
    fused = FunctionSpec(name="policy", stages=(Stage.ROLLOUT, Stage.LEARNER), max_scale=1)
    world = await make_world(tmp_path, specs=(fused, SPECS[1]))
    run = await world.context()
    await run.platform.scale(Stage.ROLLOUT, 1, hold_until=run.platform.now() + 600.0)
    await run.platform.sleep(5.0)
    holding = Holding(run)
    await holding.after(Stage.ROLLOUT)
    assert holding.decided == ()
    await holding.after(Stage.LEARNER)
    assert [(record.stage, record.decision) for record in holding.decided] == [(Stage.LEARNER, "hold")]


@in_virtual_time
async def test_actors_are_given_back_one_by_one_unless_they_are_to_be_held(tmp_path: Path) -> None:
    for number, (gaps_s, kept) in enumerate([((40.0,), 1), ((1.0,), 3)]):
        world = await make_world(tmp_path / str(number))
        run = await with_gaps(world, *gaps_s)
        hold = await Holding(run).start_actors(3, until=run.platform.now() + 600.0)
        await run.platform.sleep(5.0)
        instances = [life.instance for life in await run.platform.replicas()]
        await hold.give_back({0: instances[0]}, instances[1:])
        await run.platform.sleep(30.0)
        assert num_up(await run.platform.replicas()) == kept


@in_virtual_time
async def test_the_log_tells_of_a_decision_once_until_it_changes(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__total_training_steps=4, num_heldout=0)
    await world.drive()
    told = [event.data["message"] for event in await world.store.events.read(RUN) if event.kind == "log"]
    of_rollout = [line for line in told if line.startswith("replicas of rollout")]
    assert ["held" in line for line in of_rollout] == [True, False]
    assert "the run needs them no more" in of_rollout[1]


@in_virtual_time
async def test_after_the_last_step_only_what_evaluates_stays(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__total_training_steps=2)
    await world.drive()
    told = [event.data["message"] for event in await world.store.events.read(RUN) if event.kind == "log"]
    no_more = [line.split()[2] for line in told if "the run needs them no more" in line]
    assert no_more == ["learner"]


@in_virtual_time
async def test_a_step_tells_its_gaps_to_the_next_ones(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=0)
    await world.drive()
    first, second, third = (line["metrics"] for line in await world.history("step"))
    assert gap_metric(Stage.ROLLOUT) not in first
    for metrics in (second, third):
        # Rollout has nothing to do while the others judge and learn: 0.5 s and 2 s.
        assert metrics[gap_metric(Stage.ROLLOUT)] == pytest.approx(2.5, abs=0.6)
        assert metrics["schedule/holding/learner/held"] in (0.0, 1.0)
