"""scripts/build-images: what it asks of the tool, and what it gives it; and what the lists of the images say."""

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ROOT / "deploy" / "containers" / "locks"
RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > "$RECORD/arguments.$#"
for context; do :; done
(cd "$context" && find . -type f ! -perm -004 -printf 'unreadable %p\\n' -o -type f -print) > "$RECORD/files.$#"
"""


@dataclass(frozen=True)
class Built:
    """One call of the tool."""

    arguments: list[str]
    files: set[str]

    def after(self, option: str) -> list[str]:
        """The values of an option."""
        return [value for name, value in zip(self.arguments, self.arguments[1:], strict=False) if name == option]


def build(tmp_path: Path, *options: str, tool: str = "buildah", **variables: str) -> list[Built]:
    """Run the script with a tool that notes what it is called with."""
    tools, record = tmp_path / "bin", tmp_path / "record"
    for folder in (tools, record):
        folder.mkdir(exist_ok=True)
    (tools / tool).write_text(RECORDER)
    (tools / tool).chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "RECORD": str(record), "TMPDIR": str(tmp_path), **variables}
    subprocess.run(
        [ROOT / "scripts" / "build-images", "--tool", tool, *options],
        env=environment,
        check=True,
        capture_output=True,
        umask=0o077,
    )
    found = []
    for file in sorted(record.glob("arguments.*"), key=lambda file: file.stat().st_mtime_ns):
        files = set((record / file.name.replace("arguments", "files")).read_text().split("\n")) - {""}
        found.append(Built(file.read_text().splitlines(), files))
    return found


def test_by_default_controller_and_cpu_functions_are_built(tmp_path: Path) -> None:
    built = build(tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert [one.after("--tag") for one in built] == [
        [f"dev.local/rlhfless/{image}:{version}"] for image in ("controller", "function-cpu")
    ]
    [controller, function] = built
    assert [Path(one.after("--file")[0]).name for one in built] == [
        "controller.Containerfile",
        "function.Containerfile",
    ]
    assert "LOCK=function-cpu" in function.after("--build-arg")
    assert any(re.fullmatch(r"REVISION=[0-9a-f]{40}", value) for value in controller.after("--build-arg"))
    # PyTorch's CPU build has an index of its own; the controller has no PyTorch.
    assert [any("PIP_EXTRA_INDEX_URL=" in value for value in one.after("--build-arg")) for one in built] == [
        False,
        True,
    ]


def test_the_builder_gets_code_model_and_lists_readable_and_nothing_else(tmp_path: Path) -> None:
    [one] = build(tmp_path, "function-cpu")
    assert {path.split("/")[1] for path in one.files} == {"shared", "functions", "controller", "scripts", "deploy"}
    assert {path for path in one.files if path.startswith("./scripts")} == {
        f"./scripts/demo/model/{file.name}" for file in (ROOT / "scripts" / "demo" / "model").iterdir()
    }
    assert all(path.startswith("./deploy/containers/") for path in one.files if path.startswith("./deploy"))
    assert not [path for path in one.files if "unreadable" in path or "__pycache__" in path]


def test_options_reach_the_tool(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("torch-1.whl", "notes.txt"):
        (wheels / name).write_text("")
    [one] = build(
        tmp_path,
        *("--tag", "7", "--prefix", "registry.example.com/team", "--wheels", str(wheels), "function-cuda"),
        tool="docker",
        BASE="debian-with-python",
        BUILD_OPTIONS="--no-cache --network host",
        PIP_INDEX_URL="https://packages.example.com/simple",
    )
    assert one.arguments[:3] == ["buildx", "build", "--load"]
    assert one.arguments[3:6] == ["--no-cache", "--network", "host"]
    assert one.after("--tag") == ["registry.example.com/team/function-cuda:7"]
    assert {
        "BASE=debian-with-python",
        "LOCK=function-cuda",
        "PIP_INDEX_URL=https://packages.example.com/simple",
    } <= set(one.after("--build-arg"))
    assert {path for path in one.files if "/wheels/" in path} == {"./deploy/containers/wheels/torch-1.whl"}


@pytest.mark.parametrize(
    ("options", "says"), [(["reward"], "unknown argument reward"), (["--tag"], "--tag needs a value")]
)
def test_what_it_does_not_know_it_refuses(options: list[str], says: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "build-images", *options],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, says in done.stderr) == (1, True)


@pytest.mark.parametrize("lock", ["controller", "function-cpu", "function-cuda"])
def test_a_list_is_exact_and_names_no_place(lock: str) -> None:
    lines = (LOCKS / f"{lock}.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][\w.+!-]*", line)] == []


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("controller", ["controller", "parquet", "trackers", "object-store"]),
        ("function-cpu", ["functions", "rewards", "object-store"]),
        ("function-cuda", ["functions", "rewards", "object-store"]),
    ],
)
def test_a_list_has_what_the_project_needs(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(need for extra in extras for need in project["optional-dependencies"][extra])]
    names = {line.partition("==")[0] for line in (LOCKS / f"{lock}.txt").read_text().splitlines()}
    missing = {re.split(r"[<>=;\[ ]", need)[0].lower().replace("_", "-") for need in needed} - names
    assert not missing, "run scripts/lock-images"
    assert ("torch" in names) is lock.startswith("function")
