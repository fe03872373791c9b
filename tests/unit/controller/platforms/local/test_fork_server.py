"""The fork server's own parts: which program a command names, what is imported, what a child becomes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.platforms.local.fork_server import module_to_run
from controller.platforms.local.replica_environment import THREAD_DEFAULTS
from controller.platforms.local.settings import PRELOAD

REPOSITORY = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("argv", "module"),
    [
        (("python", "-m", "functions.main"), "functions.main"),
        (("/usr/bin/python3", "-m", "functions.main", "--x"), "functions.main"),
        (("python", "serve.py"), None),
        (("python", "-m"), None),
        (("node", "-m", "x"), None),
    ],
)
def test_module_to_run(argv: tuple[str, ...], module: str | None) -> None:
    assert module_to_run(argv) == module


def in_process(code: str, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    """Run code that changes its process for good."""
    env = {**THREAD_DEFAULTS, **os.environ, "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, check=False)


def test_preload_goes_on_without_what_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such device')")
    (tmp_path / "leaves.py").write_text("raise SystemExit(2)")
    code = (
        "from controller.platforms.local.fork_server import preload;"
        "import json; print(json.dumps(preload(['json', 'not_there', 'broken', 'leaves', 'decimal'])))"
    )
    done = in_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["preloaded"] == ["json", "decimal"]
    assert told["failed"]["not_there"].startswith("ModuleNotFoundError")
    assert told["failed"]["broken"] == "RuntimeError: no such device"
    assert told["failed"]["leaves"] == "SystemExit: 2"
    assert told["num_threads"] == 1


@pytest.mark.slow
def test_what_replicas_import_can_be_imported_and_starts_no_thread(tmp_path: Path) -> None:
    """A fork copies the one thread that forks: locks that another one holds would stay locked for ever."""
    code = (
        "from controller.platforms.local.fork_server import preload;"
        "from controller.platforms.local.settings import PRELOAD;"
        "import json; print(json.dumps(preload(PRELOAD)))"
    )
    done = in_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["preloaded"] == list(PRELOAD)
    assert told["failed"] == {}
    assert told["num_threads"] == 1


@pytest.mark.slow
def test_a_function_imports_nothing_of_its_own_after_the_fork(tmp_path: Path) -> None:
    code = (
        "from controller.platforms.local.fork_server import preload;"
        "from controller.platforms.local.settings import PRELOAD;"
        "preload(PRELOAD);"
        "import json, sys; before = set(sys.modules);"
        "from functions.main import HANDLERS;"
        "from importlib import import_module;"
        "[import_module(module) for module, name in HANDLERS.values()];"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = in_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_module_that_is_imported_already_runs_as_main(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import os, sys\n"
        "print(__name__, sys.argv[1:], dict(os.environ), sys.stdin.read() == '', flush=True)\n"
        "sys.exit(7)\n"
    )
    code = (
        "from controller.platforms.local.fork_server import Job, become, preload;"
        "preload(['job']);"
        "become(Job(argv=('python', '-m', 'job', '--fast'), env={'A': 'b'}, log='log'))"
    )
    done = in_process(code, tmp_path)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-1] == "__main__ ['--fast'] {'A': 'b'} True"
    assert done.returncode == 7


def test_any_other_program_is_executed(tmp_path: Path) -> None:
    code = (
        "from controller.platforms.local.fork_server import Job, become;"
        "become(Job(argv=('sh', '-c', 'echo $A; exit 5'), env={'A': 'b', 'PATH': '/usr/bin:/bin'}, log='log'))"
    )
    assert in_process(code, tmp_path).returncode == 5
    assert (tmp_path / "log").read_text() == "b\n"
