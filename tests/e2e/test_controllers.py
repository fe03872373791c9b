"""Controllers end, and others go on: a run belongs to no process."""

import os
import signal
from pathlib import Path

from tests.e2e.outside_redis import outside_redis
from tests.e2e.reference_run import ReferenceRun
from tests.e2e.stack import Stack, running_stack
from tests.e2e.waiting import wait_until
from tests.e2e.workspace import Workspace


def test_a_run_outlives_a_controller_that_is_killed_and_one_that_is_stopped_and_neither_leaves_a_process(
    workspace: Workspace, state_dir: Path, long_run: ReferenceRun
) -> None:
    with running_stack(workspace, state_dir) as killed:
        run = killed.api.start(long_run.config)
        wait_until_sampling(killed, run, after_steps=1)
        assert len(killed.replicas("rollout")) == 2
        killed.kill()
        assert not killed.processes()
    with running_stack(workspace, state_dir) as stopped:
        assert stopped.api.run(run)["state"] == "running", "as the killed one left it"
        wait_until_sampling(stopped, run, after_steps=1)
    assert not stopped.processes()
    assert not [line for line in stopped.log().splitlines() if '"level": "error"' in line or "Traceback" in line]
    with running_stack(workspace, state_dir) as last:
        last.api.wait(run, "succeeded")
        states = [event["data"]["state"] for event in last.api.events(run) if event["kind"] == "state"]
        assert states == ["queued", "running", "running", "paused", "running", "succeeded"]
        long_run.assert_same(last.api, run)
    assert not last.processes()


def test_two_controllers_on_one_redis_one_drives_and_the_other_waits_until_it_is_silent(
    workspace: Workspace, tmp_path: Path, long_run: ReferenceRun
) -> None:
    with outside_redis(tmp_path / "redis") as redis:
        settings = redis.settings | {"RLHFLESS_BLOB_URL": f"file://{tmp_path}/blobs"}
        with (
            running_stack(workspace, tmp_path / "first", settings) as first,
            running_stack(workspace, tmp_path / "second", settings) as second,
        ):
            run = first.api.start(long_run.config)
            wait_until(lambda: sampling(first) or sampling(second), what="one to drive the run")
            owner, other = (first, second) if sampling(first) else (second, first)
            assert other.api.run(run)["state"] == "running"
            assert not other.replicas()

            # Not dead, only silent for too long: it must find out that the run is another's now.
            os.kill(owner.pid, signal.SIGSTOP)
            wait_until(lambda: sampling(other), what="the other to take over")
            os.kill(owner.pid, signal.SIGCONT)
            wait_until(lambda: "owns run" in owner.log() or "newer owner" in owner.log(), what="the first to let go")
            other.api.wait(run, "succeeded")
            long_run.assert_same(other.api, run)
            assert not sampling(owner)
        assert not first.processes() | second.processes()


def sampling(stack: Stack) -> int:
    """How many actors of the stack work."""
    return stack.api.num_working("rollout")


def wait_until_sampling(stack: Stack, run: str, *, after_steps: int) -> None:
    """Return in the middle of a step's sampling."""
    wait_until(lambda: len(stack.api.steps(run)) >= after_steps, what=f"{after_steps} steps")
    wait_until(lambda: sampling(stack) == 2, what="both actors to sample")
