"""The REST API over real runs: the same request twice, streams that resume, the queue, cancel, resume, delete."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack
from tests.e2e.waiting import wait_until
from tests.e2e.weights import checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

CANCEL_LIMIT_S = 5.0
LONG = {
    "data.max_response_length": 2000,
    "rollout.ignore_eos": True,
    "rollout.num_actors": 2,
    "trainer.total_training_steps": 50,
}
"""Steps of many seconds."""


@pytest.fixture
def sampling(stack: Stack, workspace: Workspace) -> Iterator[str]:
    """A run in the middle of a long sampling; cancelled at the end, if it still runs."""
    run = stack.api.start(workspace.config(LONG))
    wait_until(lambda: stack.api.num_working("rollout") == 2, what="both actors to sample")
    yield run
    if stack.api.run(run)["state"] == "running":
        stack.api.request("POST", f"/v1/runs/{run}/cancel")
        stack.api.wait(run, "cancelled")


def test_the_same_request_again_returns_the_same_run_and_starts_nothing(stack: Stack, workspace: Workspace) -> None:
    config = workspace.config({"trainer.total_training_steps": 1})
    run = stack.api.start(config, key="mine")
    num_runs = len(stack.api.runs())
    assert stack.api.start(config, key="mine") == run
    stack.api.wait(run, "succeeded")
    assert stack.api.start(config, key="mine") == run

    other = workspace.config({"trainer.total_training_steps": 2})
    answer = stack.api.request("POST", "/v1/runs", json=other, headers={"Idempotency-Key": "mine"})
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
    assert answer.json()["details"]["run"] == run
    assert len(stack.api.runs()) == num_runs

    another = stack.api.start(config, key="another")
    assert another != run
    stack.api.wait(another, "succeeded")


def test_a_stream_that_resumes_has_neither_a_gap_nor_an_event_twice(stack: Stack, workspace: Workspace) -> None:
    run = stack.api.start(workspace.config())
    # Cut while the run is under way, three events at a time; the last stretch to the stream's own end.
    pieces = [stack.api.events(run, limit=3)]
    while len(pieces) < 3:
        pieces.append(stack.api.events(run, after=pieces[-1][-1]["id"], limit=3))
    pieces.append(stack.api.events(run, after=pieces[-1][-1]["id"]))
    resumed = [event for piece in pieces for event in piece]
    assert resumed == stack.api.events(run)
    ids = [tuple(map(int, event["id"].split("-"))) for event in resumed]
    assert ids == sorted(set(ids))
    assert resumed[-1]["data"] == {"state": "succeeded"}
    assert [event["data"]["step"] for event in resumed if event["kind"] == "step"] == [0, 1]
    assert stack.api.events(run, after=resumed[-1]["id"]) == []


def test_a_second_run_waits_in_the_queue_until_the_first_has_ended(stack: Stack, workspace: Workspace) -> None:
    first = stack.api.start(workspace.config({"trainer.total_training_steps": 4}))
    second = stack.api.start(workspace.config({"trainer.total_training_steps": 1}))
    stack.api.wait(first, "running")
    assert stack.api.run(second)["state"] == "queued"
    stack.api.wait(second, "succeeded")
    ended = stack.api.run(first)
    assert ended["state"] == "succeeded"
    assert stack.api.run(second)["info"]["started_at"] >= ended["info"]["finished_at"]


def test_a_queued_run_is_cancelled_without_ever_starting(stack: Stack, workspace: Workspace, sampling: str) -> None:
    waiting = stack.api.start(workspace.config())
    answer = stack.api.request("POST", f"/v1/runs/{waiting}/cancel")
    assert answer.json()["state"] == "cancelled"
    assert "started_at" not in answer.json()["info"]
    assert stack.api.run(sampling)["state"] == "running"


def test_cancel_frees_every_replica_within_its_limit_also_in_the_middle_of_sampling(
    stack: Stack, sampling: str
) -> None:
    assert len(stack.replicas("rollout")) == 2
    asked_at = time.monotonic()
    answer = stack.api.request("POST", f"/v1/runs/{sampling}/cancel")
    assert answer.status_code == 200
    wait_until(lambda: not stack.replicas(), timeout_s=CANCEL_LIMIT_S, what="every replica to be gone")
    assert time.monotonic() - asked_at < CANCEL_LIMIT_S
    stack.api.wait(sampling, "cancelled")
    assert {function["num_in_flight"] for function in stack.api.functions().values()} == {0}
    again = stack.api.request("POST", f"/v1/runs/{sampling}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "run_conflict")


def test_a_cancelled_run_resumes_at_its_head_and_comes_to_the_same_weights(stack: Stack, workspace: Workspace) -> None:
    config = workspace.config({"data.max_response_length": 200, "rollout.ignore_eos": True})
    undisturbed = stack.api.succeed(config)

    run = stack.api.start(config)
    wait_until(lambda: stack.api.steps(run) == [0], what="the first step to end")
    stack.api.request("POST", f"/v1/runs/{run}/cancel")
    stack.api.wait(run, "cancelled")
    resumed = stack.api.request("POST", f"/v1/runs/{run}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "queued")
    stack.api.wait(run, "succeeded")
    assert [f"{line['kind']} {line['step']}" for line in stack.api.history(run)] == [
        "init 0", "step 0", "step 1", "checkpoint 2",
    ]  # fmt: skip
    weights = [read_weights(checkpoint_folder(stack.api, name, 2)) for name in (run, undisturbed)]
    assert largest_difference(*weights) < 1e-6
    again = stack.api.request("POST", f"/v1/runs/{run}/resume")
    assert (again.status_code, again.json()["code"]) == (409, "run_conflict")


def test_a_deleted_run_leaves_nothing_but_its_checkpoint(stack: Stack, workspace: Workspace) -> None:
    run = stack.api.start(workspace.config(), key="soon-gone")
    early = stack.api.request("DELETE", f"/v1/runs/{run}")
    assert (early.status_code, early.json()["code"]) == (409, "run_conflict")
    stack.api.wait(run, "succeeded")
    checkpoint = checkpoint_folder(stack.api, run, 2)
    blobs = stack.state_dir / "blobs" / run
    assert any(blobs.rglob("policy-*"))

    assert stack.api.request("DELETE", f"/v1/runs/{run}").status_code == 204
    assert stack.api.request("GET", f"/v1/runs/{run}").status_code == 404
    assert run not in [other["id"] for other in stack.api.runs()]
    assert not blobs.exists()
    assert read_weights(checkpoint)
    # Its key is free again, for another config too.
    again = stack.api.start(workspace.config({"trainer.total_training_steps": 1}), key="soon-gone")
    stack.api.wait(again, "succeeded")
