"""Plans as they are kept: small whatever the batch, and the same when they are read again."""

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from controller.runs import plan_records
from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.plan_records import (
    Measured,
    PlanRecords,
    as_json,
    format_record,
    parse_record,
    plan_digest,
    round_record,
    shown_candidates,
)
from controller.scheduling.actor_count import Candidate
from shared.contracts.call import BatchKey
from shared.contracts.errors import StaleFence
from shared.contracts.stage import Purpose
from tests.fakes.planned import CLUSTER, plan_record, planned
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, make_world

TOOK = Measured(time_s=1.0, replica_s=2.0, unit_s=2.0, time_error=0.5, cost_error=None)


def batch(number: int) -> BatchKey:
    return BatchKey(run=RUN, purpose=Purpose.TRAIN, step=2, round=number)


def test_a_record_says_what_each_actor_was_given() -> None:
    made = planned(config={"rollout__num_actors": 2})
    record = round_record(3, made)
    assert (record.round, record.num_actors, record.num_groups, record.num_warm) == (3, 2, 4, 0)
    assert sum(actor.num_groups for actor in record.actors) == 4
    assert sum(actor.num_samples for actor in record.actors) == 8
    assert sum(actor.estimated_tokens for actor in record.actors) == 8 * 20
    assert made.plan.expected is not None
    assert tuple(actor.expected_s for actor in record.actors) == made.plan.expected.actor_s
    assert record.length_sources == {"default": 4}
    assert record.measured is None


@pytest.mark.parametrize("done", [False, True])
def test_a_record_comes_back_from_text(done: bool) -> None:
    record = plan_record(step=7, done=done)
    assert parse_record(format_record(record)) == record
    assert json.loads(json.dumps(as_json(record)))["step"] == 7


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"step": 0, "state": "odd"}'])
def test_what_another_version_wrote_is_not_read(text: str) -> None:
    assert parse_record(zlib.compress(text.encode())) is None
    assert parse_record(text.encode()) is None


def test_equal_plans_have_equal_digests_and_others_others() -> None:
    plan = planned().plan
    assert plan_digest(plan) == plan_digest(planned().plan)
    assert plan_digest(plan) != plan_digest(planned(count=5).plan)
    moved = replace(plan, assigned=tuple(reversed(plan.assigned)), rollout_threads=plan.rollout_threads + 1)
    assert plan_digest(plan) != plan_digest(moved)


def test_a_record_of_a_large_batch_is_small() -> None:
    resources = replace(CLUSTER, max_actors=512)
    record = replace(plan_record(), rounds=(round_record(0, planned(count=600, resources=resources)),))
    assert len(record.rounds[0].candidates) <= plan_records.MAX_CANDIDATES
    assert len(record.rounds[0].actors) > 100
    assert len(format_record(record)) < 2**13


def test_few_candidates_are_all_shown_and_of_many_those_that_matter() -> None:
    table = [Candidate(num_actors=number, time_s=1.0, cost=1.0) for number in range(1, 501)]
    assert shown_candidates(table[:10], 3) == tuple(table[:10])
    shown = [one.num_actors for one in shown_candidates(table, 240)]
    assert len(shown) <= plan_records.MAX_CANDIDATES
    assert shown == sorted(shown)
    assert {1, 239, 240, 241, 500} <= set(shown)


@in_virtual_time
async def test_plans_are_there_as_soon_as_they_are_made_and_change_when_the_step_ends(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    plans = PlanRecords(run, 2, schedule_policy(run.config))
    assert await run.store.records.plan(RUN, 2) is None
    for number in range(2):
        await plans.add(batch(number), planned())
        stored = parse_record(await run.store.records.plan(RUN, 2) or b"")
        assert stored == plans.record
        assert [one.round for one in stored.rounds] == list(range(number + 1))
    finished = plans.finished([TOOK, replace(TOOK, time_s=9.0)], plan_record(done=True).holding)
    assert (finished.state, len(finished.holding)) == ("done", 1)
    assert [one.measured.time_s for one in finished.rounds if one.measured is not None] == [1.0, 9.0]


@in_virtual_time
async def test_an_owner_who_lost_the_run_plans_nothing(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    lost = await world.context(owner="first")
    await world.context(owner="second")
    with pytest.raises(StaleFence):
        await PlanRecords(lost, 2, schedule_policy(lost.config)).add(batch(0), planned())
