"""The cases differ in what they say they differ in."""

from itertools import pairwise

import pytest

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.observations import Resources
from controller.scheduling.plan import StepPlan
from scripts.benchmarks.ablation_cases import CASES, Case, observations_of, scheduled, step_of
from scripts.benchmarks.ablation_trace import ReplayStep, Workload, drawn_step

PROFILE = DecodeProfile(
    base_s=0.01, per_sequence_s=0.001, per_context_token_s=1e-6, prefill_token_s=1e-4, max_num_sequences=16
)
RESOURCES = Resources(num_threads=1, max_actors=8, shared_threads=False)
STEP = drawn_step(Workload(num_rows=24, group_size=4, prompt_tokens=10, max_tokens=500), seed=0)
BY_NAME = {case.name: case for case in CASES}


def plan_of(case: Case, step: ReplayStep) -> StepPlan:
    observations = observations_of(step, PROFILE, RESOURCES, seed=1)
    return scheduled(case, observations, static_actors=3).plan


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_plans_all_completions_once(case: Case) -> None:
    step = step_of(case, STEP)
    plan = plan_of(case, step)
    planned = [(item.row_uid, sample) for items in plan.assigned for item in items for sample in item.samples]
    assert sorted(planned) == sorted((row.row_uid, sample) for row in step.rows for sample in range(step.group_size))


def test_completions_without_a_shared_prompt_are_as_many_and_as_long() -> None:
    alone = step_of(BY_NAME["raw"], STEP)
    assert alone.group_size == 1
    assert len(alone.rows) == 24 * 4
    assert alone.num_tokens == STEP.num_tokens


def test_static_cases_have_the_given_actors_and_the_others_choose() -> None:
    counts = {case.name: plan_of(case, step_of(case, STEP)).num_actors for case in CASES}
    assert {counts[case.name] for case in CASES if case.is_static} == {3}
    assert counts["scaling"] != 3


def test_sorted_actors_get_neighbours_in_length() -> None:
    plan = plan_of(BY_NAME["sorted_unequal"], STEP)
    known = {row.row_uid: max(row.known_lengths) for row in STEP.rows}
    ranges = sorted(
        (min(lengths), max(lengths)) for items in plan.assigned if (lengths := [known[item.row_uid] for item in items])
    )
    assert all(first[1] <= second[0] for first, second in pairwise(ranges))


def test_only_the_last_cases_migrate() -> None:
    observations = observations_of(STEP, PROFILE, RESOURCES, seed=1)
    migrating = {case.name for case in CASES if scheduled(case, observations, static_actors=3).migration is not None}
    assert migrating == {"migrate", "all"}
