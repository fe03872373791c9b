"""The plan of a step."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.actor_time import Load, actor_seconds
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.locality import PlacementAbility
from controller.scheduling.pipelining import Part
from controller.scheduling.plan import (
    PlatformFigures,
    PromptGroup,
    Resources,
    SchedulePolicy,
    StepObservations,
    StepPlan,
    plan_evenly,
    plan_step,
)
from shared.contracts.rollout import WorkItem

ROWS = tuple(f"row-{number}" for number in range(6))


def resources(num_threads: int = 2, max_actors: int = 8, shared: bool = True) -> Resources:
    return Resources(num_threads=num_threads, max_actors=max_actors, shared_threads=shared)


def test_every_row_is_a_group_in_one_piece() -> None:
    plan = plan_evenly(ROWS, group_size=3, resources=resources())
    assert plan.assigned == (
        tuple(WorkItem(row_uid=uid, samples=(0, 1, 2)) for uid in ROWS[:3]),
        tuple(WorkItem(row_uid=uid, samples=(0, 1, 2)) for uid in ROWS[3:]),
    )
    assert plan.offered == ()
    assert plan.num_actors == 2


def test_actors_on_one_machine_share_its_threads_and_the_learner_has_them_all() -> None:
    plan = plan_evenly(ROWS, group_size=1, resources=resources(num_threads=8), num_actors=3)
    assert (plan.num_actors, plan.rollout_threads, plan.learner_threads) == (3, 2, 8)


def test_an_actor_has_at_least_one_thread() -> None:
    plan = plan_evenly(ROWS, group_size=1, resources=resources(num_threads=2), num_actors=6)
    assert (plan.num_actors, plan.rollout_threads) == (6, 1)


def test_actors_on_machines_of_their_own_have_all_threads() -> None:
    plan = plan_evenly(ROWS, group_size=1, resources=resources(num_threads=4, shared=False))
    assert (plan.num_actors, plan.rollout_threads, plan.learner_threads) == (4, 4, 4)


@pytest.mark.parametrize(("asked", "max_actors", "expected"), [(5, 8, 5), (5, 3, 3), (50, 80, 6), (None, 1, 1)])
def test_the_number_asked_for_is_bounded_by_rows_and_replicas(
    asked: int | None, max_actors: int, expected: int
) -> None:
    plan = plan_evenly(ROWS, group_size=1, resources=resources(max_actors=max_actors), num_actors=asked)
    assert plan.num_actors == expected


@given(
    num_rows=st.integers(1, 60),
    group_size=st.integers(1, 16),
    num_threads=st.integers(1, 64),
    max_actors=st.integers(1, 32),
    shared=st.booleans(),
    num_actors=st.none() | st.integers(1, 64),
)
def test_a_plan_covers_every_sample_once_and_gives_no_thread_twice(
    num_rows: int, group_size: int, num_threads: int, max_actors: int, shared: bool, num_actors: int | None
) -> None:
    rows = tuple(f"row-{number}" for number in range(num_rows))
    plan = plan_evenly(
        rows,
        group_size=group_size,
        resources=resources(num_threads, max_actors, shared),
        num_actors=num_actors,
    )
    planned = [
        (item.row_uid, sample) for queue in (*plan.assigned, plan.offered) for item in queue for sample in item.samples
    ]
    assert sorted(planned) == sorted((uid, sample) for uid in rows for sample in range(group_size))
    assert 1 <= plan.num_actors <= min(num_rows, max_actors)
    assert all(plan.assigned), "no actor is asked for that has nothing to do"
    if shared and plan.num_actors <= num_threads:
        assert plan.num_actors * plan.rollout_threads <= num_threads
    assert 1 <= plan.rollout_threads <= num_threads


PROFILE = DecodeProfile(base_s=0.01, per_sequence_s=1e-3, per_context_token_s=1e-7, prefill_token_s=1e-4)
POLICIES = ("auto", "sorted_unequal", "sorted_equal", "random", "balanced", "in_order")


def seen(lengths: list[tuple[float, ...]], **changes: Any) -> StepObservations:
    """Groups of these expected lengths, on eight machines of their own unless changed."""
    groups = tuple(
        PromptGroup(
            row_uid=f"row-{n}", num_prompt_tokens=20 + n, estimate=LengthEstimate(lengths=one, source="history")
        )
        for n, one in enumerate(lengths)
    )
    given = {
        "groups": groups,
        "group_size": len(lengths[0]),
        "max_tokens": 1000,
        "resources": resources(num_threads=4, shared=False),
        "profile": PROFILE,
        **changes,
    }
    return StepObservations(**given)


def batches(size: int) -> st.SearchStrategy[list[tuple[float, ...]]]:
    group = st.lists(st.floats(1, 1000), min_size=size, max_size=size).map(lambda lengths: tuple(sorted(lengths)))
    return st.lists(group, min_size=1, max_size=20)


SKEWED = [(float(10 * n), float(30 * n)) for n in range(1, 17)]


@given(
    lengths=st.integers(1, 4).flatmap(batches),
    assignment=st.sampled_from(POLICIES),
    max_actors=st.integers(1, 30),
    shared=st.booleans(),
    num_actors=st.none() | st.integers(1, 40),
    scaling=st.booleans(),
)
def test_whatever_the_policy_a_plan_covers_every_sample_once(
    lengths: list[tuple[float, ...]],
    assignment: Any,
    max_actors: int,
    shared: bool,
    num_actors: int | None,
    scaling: bool,
) -> None:
    observations = seen(lengths, resources=resources(num_threads=3, max_actors=max_actors, shared=shared))
    policy = SchedulePolicy(assignment=assignment, num_actors=num_actors, scaling=scaling)
    plan = plan_step(observations, policy)
    planned = [(item.row_uid, sample) for queue in plan.assigned for item in queue for sample in item.samples]
    size = len(lengths[0])
    assert sorted(planned) == sorted((group.row_uid, sample) for group in observations.groups for sample in range(size))
    assert all(plan.assigned)
    assert plan.num_actors <= max_actors
    assert plan.expected is not None
    assert len(plan.expected.actor_s) == plan.num_actors == len(plan.placement)
    assert plan.num_actors in [one.num_actors for one in plan.candidates]
    assert StepPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_no_groups_are_no_step() -> None:
    with pytest.raises(ValueError, match="at least one prompt"):
        plan_step(replace(seen(SKEWED), groups=()), SchedulePolicy())


@pytest.mark.parametrize("assignment", POLICIES)
def test_what_is_expected_is_that_of_what_is_assigned(assignment: Any) -> None:
    observations = seen([(float(100 + 10 * n), float(150 + 10 * n)) for n in range(16)])
    plan = plan_step(observations, SchedulePolicy(assignment=assignment, num_actors=4))
    by_row = {group.row_uid: group for group in observations.groups}
    assert plan.expected is not None
    for items, seconds in zip(plan.assigned, plan.expected.actor_s, strict=True):
        assert {len(item.samples) for item in items} == {2}
        groups = [by_row[item.row_uid] for item in items]
        loads = [Load(num_prompt_tokens=one.num_prompt_tokens, lengths=one.estimate.lengths) for one in groups]
        assert seconds == pytest.approx(actor_seconds(loads, PROFILE))
    assert plan.expected.time_s == pytest.approx(max(plan.expected.actor_s))
    assert plan.expected.replica_s == pytest.approx(sum(plan.expected.actor_s))


def test_similar_lengths_meet_and_long_ones_start_first() -> None:
    plan = plan_step(seen(SKEWED), SchedulePolicy(assignment="sorted_equal", num_actors=4))
    numbers = [[int(item.row_uid.removeprefix("row-")) for item in actor] for actor in plan.assigned]
    assert numbers == [[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8], [15, 14, 13, 12]]


def test_the_baselines_know_no_lengths() -> None:
    plan = plan_step(seen(SKEWED), SchedulePolicy(assignment="in_order", num_actors=4))
    assert [item.row_uid for item in plan.assigned[0]] == [f"row-{n}" for n in range(4)]
    first, second = (
        plan_step(seen(SKEWED, seed=seed), SchedulePolicy(assignment="random", num_actors=4)).assigned
        for seed in (1, 2)
    )
    assert first != second


@pytest.mark.parametrize(("lambda_", "key"), [(1.0, "time_s"), (0.0, "cost")])
def test_lambda_1_is_the_fastest_plan_and_lambda_0_the_cheapest(lambda_: float, key: str) -> None:
    plan = plan_step(seen(SKEWED), SchedulePolicy(lambda_=lambda_, assignment="sorted_equal"))
    chosen = next(one for one in plan.candidates if one.num_actors == plan.num_actors)
    assert getattr(chosen, key) == min(getattr(one, key) for one in plan.candidates)
    assert plan.expected is not None
    assert plan.expected.time_s == pytest.approx(chosen.time_s)
    assert plan.expected.unit_s == pytest.approx(chosen.cost)


def test_bounds_of_the_config_hold() -> None:
    policy = SchedulePolicy(lambda_=1.0, min_actors=2, max_actors=3)
    assert [one.num_actors for one in plan_step(seen(SKEWED), policy).candidates] == [2, 3]


def test_without_scaling_there_are_as_many_actors_as_there_may_be() -> None:
    assert plan_step(seen(SKEWED), SchedulePolicy(scaling=False)).num_actors == 8
    machine = seen(SKEWED, resources=resources(num_threads=2))
    assert plan_step(machine, SchedulePolicy(scaling=False)).num_actors == 2


def test_before_anything_is_measured_a_machine_has_one_actor_per_thread() -> None:
    """As without estimates."""
    for num_threads in (1, 2, 4):
        machine = resources(num_threads=num_threads, max_actors=64)
        unknown = seen([(1000.0,) * 8] * 12, resources=machine, profile=None)
        plan, evenly = (
            plan_step(unknown, SchedulePolicy()),
            plan_evenly([group.row_uid for group in unknown.groups], group_size=8, resources=machine),
        )
        assert plan.num_actors == evenly.num_actors == num_threads
        assert (plan.rollout_threads, plan.learner_threads) == (evenly.rollout_threads, evenly.learner_threads)
        assert sorted(map(len, plan.assigned)) == sorted(map(len, evenly.assigned))


def test_fewer_groups_than_actors_are_sliced() -> None:
    plan = plan_step(seen([(400.0,) * 8] * 2), SchedulePolicy(lambda_=1.0))
    assert plan.num_actors == 8
    assert all(len(item.samples) == 2 for actor in plan.assigned for item in actor)


def test_a_start_costs_time_and_what_is_held() -> None:
    platform = PlatformFigures(cold_start_s=3.0, weight_load_s=2.0, drain_s=30.0, units_per_actor=2)
    cold, warm = (
        plan_step(seen(SKEWED, platform=platform, num_warm=num_warm), SchedulePolicy(num_actors=4)).expected
        for num_warm in (0, 4)
    )
    assert cold is not None
    assert warm is not None
    assert cold.time_s == pytest.approx(warm.time_s + 5.0)
    assert cold.replica_s == pytest.approx(warm.replica_s + 4 * 35.0)
    assert cold.unit_s == pytest.approx(2 * cold.replica_s)


def test_the_longest_actor_is_placed_beside_the_learner_and_the_rest_is_named() -> None:
    beside = PlatformFigures(weight_load_s=1e4, ability=PlacementAbility(shares_learner=True))
    plan = plan_step(seen(SKEWED, platform=beside), SchedulePolicy())
    assert plan.num_actors == 1
    assert plan.placement == ("learner",)
    sorted_ = SchedulePolicy(num_actors=4, assignment="sorted_unequal")
    forced = plan_step(seen(SKEWED, platform=beside), sorted_)
    assert forced.placement[-1] == "learner"
    assert any(text.startswith("overlap") for text in forced.unhonoured)
    off = plan_step(seen(SKEWED, platform=beside), SchedulePolicy(locality=False))
    assert (set(off.placement), off.unhonoured) == ({"anywhere"}, ())


def test_prefill_apart_replaces_that_of_the_actors() -> None:
    platform = PlatformFigures(bandwidth_bytes_per_s=1e9, has_prefill=True, apart_prefill_token_s=1e-3)
    slow = replace(PROFILE, prefill_token_s=0.1, kv_bytes_per_token=1000)
    observations = seen(SKEWED, profile=slow, platform=platform, num_tree_tokens=40)
    local, apart = (
        plan_step(observations, SchedulePolicy(num_actors=4, prefill=mode)) for mode in ("in_actor", "auto")
    )
    assert local.prefill is not None
    assert apart.prefill is not None
    assert apart.expected is not None
    assert local.expected is not None
    assert not local.prefill.is_apart
    assert apart.prefill.is_apart
    assert apart.prefill.num_tokens == 40
    assert apart.expected.time_s < local.expected.time_s
    assert apart.techniques["prefill"]["is_apart"] == 1.0


def test_the_plan_hints_at_the_fastest_execution_of_the_whole_step() -> None:
    assert plan_step(seen(SKEWED), SchedulePolicy()).execution is None
    parts = (Part(name="reference", unit_s=8.0, max_devices=1), Part(name="learner", unit_s=8.0, max_devices=1))
    plan = plan_step(seen(SKEWED, other_parts=parts, num_devices=8), SchedulePolicy())
    assert plan.execution is not None
    assert plan.execution.kind == "pipelined"
    assert plan.execution.time_s < plan.execution.phased_s
    assert plan.execution.devices["reference"] == plan.execution.devices["learner"] == 1
    assert StepPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_each_technique_says_what_it_saves() -> None:
    plan = plan_step(seen(SKEWED), SchedulePolicy(assignment="sorted_unequal"))
    assert plan.techniques["deduplication"]["saved_share"] == pytest.approx(0.5)
    assert plan.techniques["assignment"]["saved_unit_s"] > 0
    assert plan.techniques["lengths"]["from_history"] == 1.0
    most = plan.candidates[-1]
    chosen = next(one for one in plan.candidates if one.num_actors == plan.num_actors)
    assert plan.techniques["scaling"]["saved_unit_s"] == pytest.approx(most.cost - chosen.cost)
    off = plan_step(seen(SKEWED), SchedulePolicy(assignment="in_order", scaling=False))
    assert not {"assignment", "scaling"} & set(off.techniques)
