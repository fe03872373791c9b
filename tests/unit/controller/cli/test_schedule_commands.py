"""``rlhfless plan`` and ``rlhfless trace``, against a real server."""

import json
from pathlib import Path

import pytest
import yaml

from controller.runs.state import RunState
from controller.settings import REPOSITORY
from tests.fakes.planned import plan_record
from tests.unit.controller.api.fake_service import CONFIG
from tests.unit.controller.cli.conftest import Controller, command


@pytest.fixture
def run(controller: Controller) -> str:
    """A run that has done step 0 and is at step 1."""
    controller.service.add("run-0", RunState.RUNNING, total_steps=4)
    controller.service.plans["run-0"] = {0: plan_record(step=0, done=True), 1: plan_record(step=1)}
    controller.service.traces["run-0"] = {0: b'{"step":0}\n', 1: b'{"step":1}\n'}
    return "run-0"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    return file


def test_the_latest_plan_is_shown(controller: Controller, run: str) -> None:
    result = controller.command("plan", run)
    assert result.exit_code == 0, result.output
    assert "step 1 is running" in result.stdout
    assert "chosen" in result.stdout
    assert "stated defaults" in result.stdout


def test_a_step_that_is_done_says_what_it_took(controller: Controller, run: str) -> None:
    result = controller.command("plan", run, "--step", "0")
    assert result.exit_code == 0, result.output
    for part in ("step 0 is done", "time -25 %, cost –", "rollout", "release", "idle for 60 s"):
        assert part in result.stdout


def test_a_plan_is_json_on_demand(controller: Controller, run: str) -> None:
    result = controller.command("plan", run, "--step", "0", "--json")
    assert json.loads(result.stdout)["rounds"][0]["measured"]["time_s"] == 2.0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("run-0", "--step", "3"), 1, "not planned yet"),
        (("run-9",), 1, "there is no run"),
        (("run-0", "--step", "-1"), 2, "Usage"),
        (("run-0", "rollout.n=4"), 2, "a config"),
        (("gone.yaml",), 2, "gone.yaml"),
    ],
)
def test_what_cannot_be_shown_says_why(
    controller: Controller, run: str, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    result = controller.command("plan", *arguments)
    assert result.exit_code == exit_code
    assert said in result.stderr


def test_a_config_is_planned_before_it_is_started(controller: Controller, config_file: Path) -> None:
    result = controller.command("plan", str(config_file), "rollout.n=4")
    assert result.exit_code == 0, result.output
    for part in ("all 4 steps", "made of:", "stated defaults", "completion tokens", "actors"):
        assert part in result.stdout
    assert not controller.service.records
    said = json.loads(controller.command("plan", str(config_file), "--json").stdout)
    assert said["num_steps"] == 4


def test_a_config_is_planned_without_a_controller(tmp_path: Path) -> None:
    config = REPOSITORY / "scripts" / "demo" / "addition.yaml"
    result = command("plan", str(config), "rollout.n=4", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["num_steps"] == 360
    assert said["plan"]["num_groups"] == 32
    assert not (tmp_path / "state").exists(), "nothing was started or kept"
    refused = command("plan", str(config), "rollout.n=0")
    assert (refused.exit_code, "rollout.n" in refused.stderr) == (2, True)
    assert command("plan", "run-0").exit_code == 3


def test_a_config_that_is_refused_or_has_a_step_is_wrong_usage(controller: Controller, config_file: Path) -> None:
    refused = controller.command("plan", str(config_file), "rollout.n=0")
    assert refused.exit_code == 2
    assert "rollout.n" in refused.stderr
    assert controller.command("plan", str(config_file), "--step", "1").exit_code == 2


def test_a_trace_is_written_as_it_comes(controller: Controller, run: str) -> None:
    result = controller.command("trace", run)
    assert result.exit_code == 0, result.output
    assert result.stdout == '{"step":0}\n{"step":1}\n'
    assert controller.command("trace", run, "--from-step", "1").stdout == '{"step":1}\n'


def test_a_run_without_a_trace_is_a_failure_that_says_so(controller: Controller, run: str) -> None:
    result = controller.command("trace", run, "--from-step", "2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no trace from step 2 on" in result.stderr
    assert controller.command("trace", "run-9").exit_code == 1
