"""The command from its arguments to its output and exit code, against a real server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.runs.config.load import load_config, resolved
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from tests.unit.controller.api.fake_service import CONFIG
from tests.unit.controller.cli.conftest import HEARING_CTRL_C, Controller, command

SCRIPT = [
    ("state", {"state": RunState.RUNNING}),
    ("eval", {"step": 0, "accuracy": 0.25, "num_rows": 8}),
    ("step", {"step": 0, "total_steps": 1, "metrics": {"critic/score/mean": 0.5}}),
    ("checkpoint", {"step": 1, "folder": "/c/global_step_1"}),
    ("state", {"state": RunState.SUCCEEDED}),
]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    return file


def test_a_run_is_trained_and_followed(controller: Controller, config_file: Path) -> None:
    controller.service.script = SCRIPT
    result = controller.command("train", str(config_file), "rollout.n=4")
    assert result.exit_code == 0, result.output
    for part in ("held-out accuracy 0.250", "step 1/1", "0.250 before", "/c/global_step_1/huggingface"):
        assert part in result.stdout
    assert controller.service.records["run-0"].config["rollout"]["n"] == 4


def test_json_is_the_only_thing_on_standard_output(controller: Controller, config_file: Path) -> None:
    controller.service.script = SCRIPT
    result = controller.command("train", str(config_file), "--json")
    assert json.loads(result.stdout)["model_dir"] == "/c/global_step_1/huggingface"
    assert "step 1/1" in result.stderr


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED])
def test_a_run_that_does_not_succeed_is_a_failure(controller: Controller, config_file: Path, state: RunState) -> None:
    controller.service.script = [("state", {"state": state, "reason": "disk full"})]
    result = controller.command("train", str(config_file))
    assert result.exit_code == 1
    assert f"error: run run-0 {state}" in result.stderr


def test_a_detached_run_is_not_waited_for(controller: Controller, config_file: Path) -> None:
    result = controller.command("train", str(config_file), "--detach", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["id"] == "run-0"
    assert "rlhfless logs -f run-1" in controller.command("train", str(config_file), "--detach").stdout


def test_the_same_request_again_is_the_same_run(controller: Controller, config_file: Path) -> None:
    for _ in range(2):
        controller.command("train", str(config_file), "--detach", "--idempotency-key", "once")
    assert list(controller.service.records) == ["run-0"]
    result = controller.command("train", str(config_file), "rollout.n=2", "--idempotency-key", "once")
    assert result.exit_code == 1
    assert "once" in result.stderr


def test_a_dry_run_prints_a_config_that_can_be_run(controller: Controller, config_file: Path) -> None:
    result = controller.command("train", str(config_file), "--dry-run", "rollout.n=4")
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout) == resolved(load_config(CONFIG, ["rollout.n=4"]))
    assert "4 steps; nothing was started" in result.stderr
    assert json.loads(controller.command("train", str(config_file), "--dry-run", "--json").stdout)["total_steps"] == 4
    assert not controller.service.records


def test_a_preset_lies_under_the_configs_own_keys(controller: Controller, config_file: Path) -> None:
    result = controller.command("train", str(config_file), "--dry-run", "--preset", "gspo", "rollout.n=4")
    assert yaml.safe_load(result.stdout) == resolved(load_config(CONFIG, ["preset=gspo", "rollout.n=4"]))
    assert "preset" in controller.command("train", str(config_file), "--preset", "best").stderr


def test_relative_paths_are_meant_from_the_file(controller: Controller, config_file: Path) -> None:
    (config_file.parent / "train.jsonl").touch()
    result = controller.command("train", str(config_file), "--dry-run", "--json")
    assert json.loads(result.stdout)["config"]["data"]["train_files"] == [str(config_file.parent / "train.jsonl")]
    assert "data.train_files: train.jsonl is" in result.stderr


def test_a_config_that_is_refused_is_a_table(controller: Controller, config_file: Path) -> None:
    result = controller.command("train", str(config_file), "rollout.n=1", "rollout.m=3")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "2 problems" in result.stderr
    assert "rollout.m" in result.stderr
    assert "rollout.n" in result.stderr
    assert not controller.service.records


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "line"),
        ("- a", "mapping"),
        ("a: 1\na: 2", "twice"),
        ("a: 2024-13-45", "month"),
        ("a: \xff", "YAML"),
        ("a: .nan", "NaN"),
        ("a: &x [*x]", "Circular"),
        ("2024-10-09: 1", "keys must be"),
    ],
)
def test_a_file_that_is_no_config_is_refused(controller: Controller, config_file: Path, text: str, said: str) -> None:
    config_file.write_text(text, encoding="latin-1")
    result = controller.command("train", str(config_file))
    assert result.exit_code == 2
    assert said in result.stderr
    assert not controller.service.records


def test_a_date_where_a_name_is_meant_is_its_text(controller: Controller, config_file: Path) -> None:
    config_file.write_text(yaml.safe_dump(CONFIG) + "trainer.experiment_name: 2024-10-09\n")
    result = controller.command("train", str(config_file), "--dry-run", "--json")
    assert json.loads(result.stdout)["config"]["trainer"]["experiment_name"] == "2024-10-09"


def test_a_file_that_is_not_there_is_named(controller: Controller, tmp_path: Path) -> None:
    for file in (tmp_path / "gone.yaml", tmp_path):
        result = controller.command("train", str(file))
        assert result.exit_code == 2
        assert str(file) in result.stderr


def test_runs_are_listed(controller: Controller) -> None:
    assert "no runs" in controller.command("runs").stdout
    controller.service.add("run-0", RunState.FAILED, error="disk full", total_steps=4)
    controller.service.add("run-1")
    assert [line.split()[0] for line in controller.command("runs").stdout.splitlines()] == ["run", "run-1", "run-0"]
    listed = json.loads(controller.command("runs", "--json", "--state", "failed").stdout)
    assert [run["id"] for run in listed] == ["run-0"]
    assert controller.command("runs", "--state", "asleep").exit_code == 2


def test_a_run_is_shown(controller: Controller) -> None:
    controller.service.add("run-0", RunState.FAILED, error="disk [full]")
    controller.service.folders["run-0"][4] = Path("/c/global_step_4")
    text = controller.command("show", "run-0").stdout
    assert "failed: disk [full]" in text
    assert "/c/global_step_4" in text
    shown = json.loads(controller.command("show", "run-0", "--json").stdout)
    assert (shown["outcome"]["reason"], shown["checkpoints"][0]["step"]) == ("disk [full]", 4)


def test_logs_are_printed_without_what_a_terminal_acts_upon(controller: Controller) -> None:
    controller.service.add("run-0")
    controller.call(controller.service.emit("run-0", "log", {"level": "info", "message": "[bold]\x1b[2J" + "x" * 300}))
    [line] = controller.command("logs", "run-0").stdout.splitlines()
    assert line.endswith("INFO    [bold]�[2J" + "x" * 300)
    controller.call(controller.service.emit("run-0", "state", {"state": RunState.SUCCEEDED}))
    assert "run succeeded" in controller.command("logs", "-f", "run-0").stdout


def test_a_run_is_cancelled_resumed_and_deleted(controller: Controller) -> None:
    controller.service.add("run-0")
    refused = controller.command("delete", "run-0")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "cancel it first" in refused.stderr
    assert "cancelled" in controller.command("cancel", "run-0").stdout
    assert json.loads(controller.command("resume", "run-0", "--json").stdout)["state"] == "queued"
    controller.command("cancel", "run-0")
    assert "deleted" in controller.command("delete", "run-0").stdout
    assert not controller.service.records


def test_functions_are_listed(controller: Controller) -> None:
    assert "rollout-00001" in controller.command("functions").stdout
    assert json.loads(controller.command("functions", "--json").stdout)[0]["name"] == "rollout"


@pytest.mark.parametrize("name", ["show", "logs", "cancel", "resume", "delete"])
def test_an_unknown_run_is_a_failure(controller: Controller, name: str) -> None:
    result = controller.command(name, "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no run 'nobody'" in result.stderr


def test_a_lost_store_is_a_failure_that_says_so(controller: Controller) -> None:
    controller.service.failure = StoreUnavailable("Redis did not answer")
    result = controller.command("runs")
    assert result.exit_code == 1
    assert "Redis did not answer" in result.stderr


def test_no_controller_is_its_own_exit_code() -> None:
    result = command("runs")
    assert result.exit_code == 3
    assert "rlhfless up" in result.stderr
    gone = command("--url", "http://127.0.0.1:1", "runs")
    assert gone.exit_code == 3
    assert "http://127.0.0.1:1" in gone.stderr


@pytest.mark.parametrize("arguments", [["train"], ["fly"], ["show"], ["runs", "--limit", "0"], ["--url", "x", "runs"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert command(*arguments).exit_code == 2


@pytest.fixture
def locked_controller() -> Iterator[Controller]:
    controller = Controller(token="the-token")
    yield controller
    controller.close()


def test_the_token_is_asked_for(locked_controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locked_controller.command("runs").exit_code == 0
    refused = command("--url", locked_controller.url, "runs")
    assert refused.exit_code == 1
    assert "token" in refused.stderr
    monkeypatch.setenv("RLHFLESS_TOKEN", "the-token")
    assert command("--url", locked_controller.url, "runs").exit_code == 0


def test_ctrl_c_ends_the_watching_and_not_the_run(controller: Controller, config_file: Path) -> None:
    controller.service.script = SCRIPT[:3]
    arguments = ["--url", controller.url, "train", str(config_file)]
    with subprocess.Popen(
        [sys.executable, "-c", HEARING_CTRL_C, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout:
            if "step 1/1" in line:
                process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "rlhfless cancel run-0" in said
    assert "Traceback" not in said
    assert controller.service.records["run-0"].state == RunState.RUNNING


def test_help_needs_none_of_what_commands_need() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from controller.cli.main import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print([name for name in ('httpx', 'fastapi', 'redis', 'yaml', 'uvicorn', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
