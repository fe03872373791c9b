"""Redis is killed in the middle of a step and comes back: the step completes as if nothing had been."""

from tests.e2e.long_run import LongRun
from tests.e2e.processes import kill
from tests.e2e.stack import Stack
from tests.e2e.waiting import wait_until


def test_redis_killed_in_the_middle_of_sampling_and_of_an_update(stack: Stack, long_run: LongRun) -> None:
    run = stack.api.start(long_run.config)
    for function in ("rollout", "learner"):
        wait_until(lambda function=function: stack.api.num_working(function), what=f"the {function} to work")
        killed = stack.redis()
        assert killed is not None
        kill([killed])
        wait_until(lambda killed=killed: stack.redis() not in (None, killed), what="Redis to be back")
    stack.api.wait(run, "succeeded")
    long_run.assert_same(stack.api, run)
