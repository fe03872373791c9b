"""Whatever is killed, whenever and however often: the run comes to the weights that it would have come to."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.api import ENDED
from tests.e2e.processes import child_with, kill
from tests.e2e.reference_run import ReferenceRun
from tests.e2e.stack import Stack, running_stack
from tests.e2e.workspace import Workspace

NUM_KILLS = 8
LONGEST_PAUSE_S = 3.0

VICTIMS: dict[str, Callable[[Stack], set[int] | int | None]] = {
    "rollout": lambda stack: stack.replicas("rollout"),
    "reward": lambda stack: stack.replicas("reward"),
    "learner": lambda stack: stack.replicas("learner"),
    "all replicas": lambda stack: stack.replicas(),
    "redis": lambda stack: stack.redis(),
    "fork server": lambda stack: child_with(stack.pid, "fork_server"),
    "controller": lambda stack: stack.pid,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_kills(workspace: Workspace, state_dir: Path, long_run: ReferenceRun, seed: int) -> None:
    dice = random.Random(seed)
    kills: list[str] = []
    run = ""
    while True:
        with running_stack(workspace, state_dir) as stack:
            run = run or stack.api.start(long_run.config)
            while len(kills) < NUM_KILLS and stack.api.run(run)["state"] not in ENDED:
                time.sleep(dice.uniform(0, LONGEST_PAUSE_S))
                kills.append(dice.choice(list(VICTIMS)))
                print(f"{time.monotonic():.1f} s: kill {kills[-1]}")
                victims = VICTIMS[kills[-1]](stack)
                kill(victims if isinstance(victims, set) else {victims} - {None})
                if kills[-1] == "controller":
                    break
            else:
                assert stack.api.wait(run)["state"] == "succeeded", f"{kills}: {stack.api.run(run)['info']}"
                long_run.assert_same(stack.api, run)
                return
