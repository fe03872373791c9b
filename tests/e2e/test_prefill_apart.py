"""A run whose prompts are prefilled apart, through real functions: the same weights as where actors prefill."""

from typing import Any

import pytest

from tests.e2e.reference_run import ReferenceRun, short_config
from tests.e2e.stack import Stack
from tests.e2e.workspace import Workspace


def prefilled(workspace: Workspace, mode: str) -> dict[str, Any]:
    config = short_config(workspace)
    return config | {"schedule": {**config.get("schedule", {}), "prefill": {"mode": mode}}}


@pytest.fixture(scope="module")
def in_actor(stack: Stack, workspace: Workspace) -> ReferenceRun:
    return ReferenceRun.of(stack.api, prefilled(workspace, "in_actor"))


def test_it_makes_the_same_weights_and_counts_what_it_stored(
    stack: Stack, workspace: Workspace, in_actor: ReferenceRun
) -> None:
    run = stack.api.succeed(prefilled(workspace, "disaggregated"))
    in_actor.assert_same(stack.api, run)
    for line in stack.api.history(run, "step"):
        metrics = line["metrics"]
        assert metrics["prefill/num_handles"] == metrics["prefill/num_prefixes"] > 0
        assert metrics["schedule/prefill/hits"] >= metrics["prefill/num_prefixes"]
        assert metrics["schedule/prefill/misses"] == metrics["schedule/prefill/damaged"] == 0
        assert (metrics["prefill/num_refused"], metrics["prefill/num_failed"]) == (0, 0)
