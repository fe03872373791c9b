"""The rows of ``rlhfless top``, made of answers."""

from controller.cli.top_view import FunctionRow, ReplicaRow, RunRow, top_view
from tests.unit.controller.cli.top_data import function, replica, top_data


def test_a_function_is_a_row() -> None:
    busy = function(
        "rollout", num_replicas=3, num_ready=2, num_pending=1, num_in_flight=2, num_queued=4, min_scale=1, max_scale=0
    )
    [row] = top_view(top_data(functions=[busy], costs={"rollout": 1.5})).functions
    assert row == FunctionRow(
        function="rollout",
        ready=2,
        pending=1,
        total=3,
        in_flight=2,
        queued=4,
        scale="1–∞",
        cost="$1.50",
        revision="rollout-00001",
        state="",
    )


def test_functions_with_replicas_come_first() -> None:
    view = top_view(top_data(functions=[function("reward"), function("learner"), function("rollout", num_replicas=1)]))
    assert [row.function for row in view.functions] == ["rollout", "learner", "reward"]
    assert {row.cost for row in view.functions} == {"$0.000000"}


def test_a_split_of_traffic_is_shown() -> None:
    shares = {"rollout-00001": 90, "rollout-00002": 10, "rollout-00003": 0}
    split = function(
        "rollout",
        revision="rollout-00003",
        revisions=[{"name": name, "percent": percent} for name, percent in shares.items()],
    )
    pinned = split | {"revisions": [{"name": name, "percent": 100 * (name[-1] == "2")} for name in shares]}
    unknown = split | {"revisions": []}
    rows = top_view(top_data(functions=[split, pinned, unknown])).functions
    assert [row.revision for row in rows] == ["00001 90%, 00002 10%", "rollout-00002", "rollout-00003"]


def test_a_function_that_is_not_ready_says_why() -> None:
    reasons = [function("a", ready=False, reason="crash loop"), function("b", ready=False)]
    assert [row.state for row in top_view(top_data(functions=reasons)).functions] == ["crash loop", "not ready"]


def test_a_replica_is_a_row() -> None:
    working = replica("rollout-00001-ab", num_in_flight=1, usd=0.25)
    waiting = replica("rollout-00001-cd", "pending", reason="unschedulable: 3 of 2 cpus")
    assert top_view(top_data(replicas=[working, waiting])).replicas == (
        ReplicaRow(
            replica="rollout-00001-ab",
            state="ready",
            age="1 min 30 s",
            in_flight=1,
            cost="$0.250000",
            revision="rollout-00001",
        ),
        ReplicaRow(
            replica="rollout-00001-cd",
            state="pending: unschedulable: 3 of 2 cpus",
            age="1 min 40 s",
            in_flight=0,
            cost="–",
            revision="rollout-00001",
        ),
    )


def test_replicas_are_sorted_by_function_state_and_age() -> None:
    replicas = [
        replica("rollout-1-d", "draining"),
        replica("rollout-1-p", "pending"),
        replica("rollout-1-s", "starting"),
        replica("rollout-1-young", scheduled_at=950.0),
        replica("rollout-1-old", scheduled_at=901.0),
        replica("learner-1-a"),
    ]
    shown = [row.replica.rpartition("-")[2] for row in top_view(top_data(replicas=replicas)).replicas]
    assert shown == ["a", "old", "young", "s", "p", "d"]


def test_a_run_is_a_row_with_its_last_step() -> None:
    runs = [
        {"id": "run-1", "state": "running", "info": {"total_steps": 60}},
        {"id": "run-2", "state": "queued", "info": {}},
    ]
    last = {"run-1": {"step": 11, "metrics": {"critic/score/mean": 0.515}}}
    assert top_view(top_data(runs=runs, last_steps=last)).runs == (
        RunRow(run="run-1", state="running", step="12/60", reward="0.515"),
        RunRow(run="run-2", state="queued", step="0/?", reward="–"),
    )


def test_the_head_says_where_what_is_held_and_what_it_costs() -> None:
    replicas = [
        replica("rollout-1-a", num_cpus=1.5, num_gpus=1),
        replica("rollout-1-b", "draining"),
        replica("rollout-1-c", "pending", num_cpus=64.0, num_gpus=8),
    ]
    view = top_view(top_data(replicas=replicas, costs={"rollout": 1.0, "learner": 2.5}))
    assert view.where == "local on laptop (http://127.0.0.1:8765), up 1 min 15 s"
    # 2 CPUs at 0.04 and a GPU at 2.
    assert view.held == "holds 2 CPUs and 1 GPUs for $2.08 an hour; $3.50 so far"
