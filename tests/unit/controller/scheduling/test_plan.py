"""The plan of a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.plan import Resources, plan_evenly
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
