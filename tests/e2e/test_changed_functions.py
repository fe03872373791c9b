"""A function of a real stack is changed between runs: another revision serves; a wrong one is taken back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Json
from tests.e2e.stack import Stack, running_stack
from tests.e2e.waiting import wait_until
from tests.e2e.workspace import Workspace


@pytest.fixture
def own_stack(workspace: Workspace, tmp_path: Path) -> Iterator[Stack]:
    """A stack whose functions may be changed."""
    with running_stack(workspace, tmp_path) as stack:
        yield stack


def changed(stack: Stack, name: str, wanted: Json) -> Json:
    """Ask for a change and wait for its end."""
    answer = stack.api.request("PUT", f"/v1/functions/{name}", json=wanted)
    assert answer.status_code == 202, answer.text
    function: Json = {}

    def over() -> bool:
        function.update(stack.api.get(f"/v1/functions/{name}"))
        return function["change"]["state"] in ("done", "failed")

    wait_until(over, what=f"the change of {name}")
    return function


@pytest.mark.slow
def test_a_changed_function_serves_and_a_wrong_one_is_taken_back(own_stack: Stack, workspace: Workspace) -> None:
    config = workspace.config({"trainer.total_training_steps": 1})
    first = own_stack.api.start(config)
    own_stack.api.wait(first, "succeeded")

    good = changed(own_stack, "reward", {"image": "there/function:2", "env": {"RLHFLESS_DETERMINISTIC": "1"}})
    assert (good["change"]["state"], good["revision"]) == ("done", "reward-00002"), good["change"]["reason"]
    assert good["image"] == "there/function:2"

    wrong = changed(own_stack, "reward", {"env": {"RLHFLESS_STAGES": "reference"}})
    assert (wrong["change"]["state"], wrong["revision"]) == ("failed", "reward-00002")
    assert "reward is back at reward-00002: reward serves reference, not reward" in wrong["change"]["reason"]

    second = own_stack.api.start(config)
    own_stack.api.wait(second, "succeeded")
    revisions = {replica["revision"] for replica in own_stack.api.get("/v1/replicas?ended=true")["replicas"]}
    assert {"reward-00001", "reward-00002"} <= revisions
