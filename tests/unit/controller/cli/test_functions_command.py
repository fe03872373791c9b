"""``rlhfless functions`` against a server over a fake service."""

import asyncio
import json
from dataclasses import replace

import pytest

from controller.cli import functions_command
from controller.runs.function_swaps import Swap, SwapState
from controller.runs.state import RunState
from tests.unit.controller.cli.conftest import Controller

IMAGE = "rlhfless/function-cpu:0.2.0"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that follow at once."""
    monkeypatch.setattr(functions_command, "LOOK_EVERY_S", 0.01)


def ends(controller: Controller, state: SwapState, **changes: str) -> None:
    """The next change that is asked for ends so, a little later."""

    def end() -> None:
        [(name, asked)] = controller.swaps._swaps.items()
        controller.swaps._swaps[name] = replace(asked, state=state, ended_at=60.0, **changes)

    def on_request() -> None:
        asyncio.get_running_loop().call_later(0.03, end)

    controller.swaps.on_request = on_request


def asked_for(controller: Controller) -> Swap:
    [swap] = controller.swaps.swaps.values()
    return swap


@pytest.mark.parametrize("command", [["functions"], ["functions", "list"]])
def test_functions_are_listed(controller: Controller, command: list[str]) -> None:
    assert "rollout-00001" in controller.command(*command).stdout
    assert json.loads(controller.command(*command, "--json").stdout)[0]["name"] == "rollout"


def test_one_is_shown(controller: Controller) -> None:
    shown = controller.command("functions", "show", "rollout")
    assert "rlhfless/function-cpu:0.1.0" in shown.stdout
    assert "rollout-00001" in shown.stdout
    assert json.loads(controller.command("functions", "show", "rollout", "--json").stdout)["change"] is None
    missing = controller.command("functions", "show", "rolout")
    assert missing.exit_code == 1
    assert "there are: rollout" in missing.stderr


def test_a_change_is_followed_to_its_end(controller: Controller) -> None:
    ends(controller, SwapState.DONE, revision="rollout-00002")
    result = controller.command(
        *("functions", "set", "rollout", "--image", IMAGE, "--env", "A=b=c", "--env", "D=", "--unset", "E"),
        *("--cpu", "2", "--memory", "2Gi", "--gpus", "1"),
    )
    assert result.exit_code == 0, result.stderr
    assert "waiting" in result.stderr
    assert "rollout is rollout-00001 now" in result.stdout
    change = asked_for(controller).change
    assert (change.image, change.env) == (IMAGE, {"A": "b=c", "D": "", "E": None})
    assert change.requests == {"cpu": "2", "memory": "2Gi"}
    assert change.limits == {"nvidia.com/gpu": "1", "memory": "2Gi"}
    assert "done (now)" in controller.command("functions", "show", "rollout").stdout


def test_a_change_that_was_taken_back_is_a_failure(controller: Controller) -> None:
    ends(controller, SwapState.FAILED, reason="rollout is back at rollout-00001: it crashed")
    result = controller.command("functions", "set", "rollout", "--image", IMAGE)
    assert result.exit_code == 1
    assert "rollout is back at rollout-00001: it crashed" in result.stderr


def test_a_change_that_is_not_waited_for(controller: Controller) -> None:
    result = controller.command("functions", "set", "rollout", "--image", IMAGE, "--when", "idle", "--detach")
    assert result.exit_code == 0
    assert "will be changed (idle)" in result.stdout
    assert asked_for(controller).state is SwapState.WAITING


def test_a_function_in_use_is_left_alone(controller: Controller) -> None:
    controller.service.add("run-0", RunState.RUNNING)
    result = controller.command("functions", "set", "rollout", "--image", IMAGE)
    assert result.exit_code == 1
    assert "run run-0 uses rollout" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "A"], "as NAME=value"),
        (["--image", "no-tag"], "a tag or a digest"),
        ([], "nothing is to be changed"),
        (["--image", IMAGE, "--when", "later"], "when"),
    ],
)
def test_wrong_changes_are_usage_errors(controller: Controller, arguments: list[str], said: str) -> None:
    result = controller.command("functions", "set", "rollout", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not controller.swaps.swaps
