"""Redis goes away in the middle of a step and comes back: the step completes as if nothing had been."""

import time
from pathlib import Path

import pytest

from tests.e2e.outside_redis import outside_redis
from tests.e2e.processes import kill
from tests.e2e.reference_run import ReferenceRun
from tests.e2e.stack import Stack, running_stack
from tests.e2e.waiting import wait_until
from tests.e2e.workspace import Workspace

AWAY_S = 25.0
"""Longer than anybody waits for a lost store before he says so."""


def test_redis_killed_in_the_middle_of_sampling_and_of_an_update(stack: Stack, long_run: ReferenceRun) -> None:
    run = stack.api.start(long_run.config)
    for function in ("rollout", "learner"):
        wait_until(lambda function=function: stack.api.num_working(function), what=f"the {function} to work")
        killed = stack.redis()
        assert killed is not None
        kill([killed])
        wait_until(lambda killed=killed: stack.redis() not in (None, killed), what="Redis to be back")
    stack.api.wait(run, "succeeded")
    long_run.assert_same(stack.api, run)


@pytest.mark.slow
def test_a_redis_that_is_away_for_long_is_waited_for(
    workspace: Workspace, tmp_path: Path, long_run: ReferenceRun
) -> None:
    with (
        outside_redis(tmp_path / "redis") as redis,
        running_stack(workspace, tmp_path / "state", redis.settings) as stack,
    ):
        run = stack.api.start(long_run.config)
        wait_until(lambda: stack.api.num_working("rollout"), what="the run to sample")
        redis.kill()
        assert stack.api.request("GET", "/readyz").status_code == 503
        lost = stack.api.request("GET", f"/v1/runs/{run}")
        assert (lost.status_code, lost.json()["code"]) == (503, "store_unavailable")
        time.sleep(AWAY_S)
        redis.start()
        wait_until(lambda: stack.api.request("GET", "/readyz").status_code == 200, what="Redis to be back")
        stack.api.wait(run, "succeeded")
        long_run.assert_same(stack.api, run)


def test_a_redis_that_ends_again_and_again_ends_the_stack_with_a_word(workspace: Workspace, state_dir: Path) -> None:
    with running_stack(workspace, state_dir) as stack:

        def ended() -> bool:
            kill({stack.redis()} - {None})
            return not stack.is_alive()

        wait_until(ended, what="the stack to give up")
        assert "error: Redis ended 6 times in a minute" in stack.log()
        assert "Traceback" not in stack.log()
        assert not stack.processes()
