"""Controllers end, and others go on: a run belongs to no process."""

import os
import signal
from pathlib import Path

from tests.e2e.long_run import LongRun
from tests.e2e.outside_redis import outside_redis
from tests.e2e.stack import Stack, running_stack
from tests.e2e.waiting import wait_until
from tests.e2e.workspace import Workspace


def test_a_killed_controller_leaves_no_process_and_the_next_one_on_its_folder_goes_on(
    workspace: Workspace, state_dir: Path, long_run: LongRun
) -> None:
    with running_stack(workspace, state_dir) as stack:
        run = stack.api.start(long_run.config)
        wait_until_sampling(stack, run, after_steps=1)
        assert len(stack.replicas()) == 4
        stack.kill()
        assert not stack.processes()
    with running_stack(workspace, state_dir) as stack:
        assert stack.api.run(run)["state"] in ("running", "paused")
        stack.api.wait(run, "succeeded")
        long_run.assert_same(stack.api, run)
        wait_until(lambda: not stack.replicas(), what="the replicas to end")
    assert not stack.processes()


def test_a_stopped_controller_pauses_its_run_and_ends_everything(
    workspace: Workspace, state_dir: Path, long_run: LongRun
) -> None:
    with running_stack(workspace, state_dir) as stack:
        run = stack.api.start(long_run.config)
        wait_until_sampling(stack, run, after_steps=0)
    assert not stack.processes()
    assert not [line for line in stack.log().splitlines() if '"level": "error"' in line or "Traceback" in line]
    with running_stack(workspace, state_dir) as stack:
        states = [event["data"]["state"] for event in stack.api.events(run) if event["kind"] == "state"]
        assert states == ["queued", "running", "paused", "running", "succeeded"]
        long_run.assert_same(stack.api, run)


def test_two_controllers_on_one_redis_one_drives_and_the_other_waits_for_its_end(
    workspace: Workspace, tmp_path: Path, long_run: LongRun
) -> None:
    with outside_redis(tmp_path / "redis") as redis:
        settings = redis.settings | {"RLHFLESS_BLOB_URL": f"file://{tmp_path}/blobs"}
        with (
            running_stack(workspace, tmp_path / "first", settings) as first,
            running_stack(workspace, tmp_path / "second", settings) as second,
        ):
            run = first.api.start(long_run.config)
            wait_until_driven(first, second)
            assert second.api.run(run)["state"] == "running"
            owner, other = (first, second) if first.replicas() else (second, first)
            assert not other.replicas()

            # Not dead, only silent for too long: it must find out that the run is another's now.
            os.kill(owner.pid, signal.SIGSTOP)
            wait_until(lambda: other.api.num_working("rollout"), what="the other to take over")
            os.kill(owner.pid, signal.SIGCONT)
            wait_until(lambda: "owns run" in owner.log() or "newer owner" in owner.log(), what="the first to let go")

            other.kill()
            owner.api.wait(run, "succeeded")
            long_run.assert_same(owner.api, run)
        assert not first.processes() | second.processes()


def wait_until_sampling(stack: Stack, run: str, *, after_steps: int) -> None:
    """Return in the middle of a step's sampling."""
    wait_until(lambda: len(stack.api.steps(run)) >= after_steps, what=f"{after_steps} steps")
    wait_until(lambda: stack.api.num_working("rollout") == 2, what="both actors to sample")


def wait_until_driven(*stacks: Stack) -> None:
    """Return when one of the stacks samples."""
    wait_until(lambda: any(stack.api.num_working("rollout") for stack in stacks), what="one to drive the run")
