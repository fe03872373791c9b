"""A function's process: which stages it serves, what it imports for that, and how it refuses to start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from functions.main import HANDLERS, build, main, make_handler
from shared.contracts.stage import Stage
from shared.service.settings import FunctionSettings

REPOSITORY = Path(__file__).resolve().parents[3]
SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    token_file = tmp_path / "token"
    token_file.write_text(SECRET)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "RLHFLESS_STAGES": "reward",
        "RLHFLESS_TOKEN_FILE": str(token_file),
        "REDIS_URL": f"redis://:{SECRET}@localhost:1/0",
    }


def run(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_every_stage_with_a_package_has_its_handler() -> None:
    packages = {path.parent.name for path in (REPOSITORY / "functions").glob("*/app.py")}
    assert packages == {str(stage) for stage in HANDLERS}


@pytest.mark.parametrize("stage", HANDLERS)
def test_a_handler_serves_the_stage_it_is_listed_for(stage: Stage, environment: dict[str, str]) -> None:
    settings = FunctionSettings.from_environment(environment | {"RLHFLESS_STAGES": stage})
    assert make_handler(stage, settings).stage is stage


def test_one_process_can_serve_several_stages(environment: dict[str, str]) -> None:
    settings = FunctionSettings.from_environment(environment | {"RLHFLESS_STAGES": "rollout,reward"})
    paths = {getattr(route, "path", "") for route in build(settings, started_at=0.0).routes}
    assert {"/v1/rollout", "/v1/reward", "/v1/info", "/readyz", "/healthz", "/metrics"} <= paths
    assert "/v1/learner" not in paths


def test_the_reward_function_needs_no_torch(environment: dict[str, str]) -> None:
    code = """
import sys
for name in ("torch", "transformers", "vllm", "jax"):
    sys.modules[name] = None
from functions.main import build
from shared.service.settings import FunctionSettings
build(FunctionSettings.from_environment(), started_at=0.0)
print("functions.rollout" in sys.modules, "functions.learner" in sys.modules)
"""
    result = run(code, environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "False False"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "http"),
        ("RLHFLESS_STAGES", "cook"),
        ("RLHFLESS_TOKEN_FILE", "/nowhere"),
        ("REDIS_URL", f"nonsense://:{SECRET}@localhost"),
        ("RLHFLESS_BLOB_URL", f"s3://{SECRET}@bucket"),
    ],
)
def test_a_bad_setting_ends_the_start_and_is_named(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setattr("functions.main.log_to_stderr", lambda **constant: None)
    for name, setting in (environment | {variable: value}).items():
        monkeypatch.setenv(name, setting)
    with pytest.raises(SystemExit) as ended:
        main()
    assert variable in str(ended.value)
    assert SECRET not in str(ended.value)


def test_a_process_that_cannot_start_says_why_in_one_line(environment: dict[str, str]) -> None:
    result = run("from functions.main import main; main()", environment | {"REDIS_URL": f"nonsense://:{SECRET}@host"})
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "REDIS_URL" in result.stderr
    assert SECRET not in result.stdout + result.stderr


def test_every_stage_is_served() -> None:
    assert set(HANDLERS) == set(Stage)
