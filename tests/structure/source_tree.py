"""The committed source tree as the structure tests see it: every file that git knows or would take."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("functions", "controller", "shared")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Files of the repository, committed or about to be, relative to its root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = sorted({Path(name) for name in listing.split("\0") if name and (ROOT / name).is_file()})
    assert files, "git lists no file: the structure tests would check nothing"
    return tuple(files)


@cache
def text_of(path: Path) -> str:
    """Content of a file, empty if it is not text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def syntax_of(path: Path) -> ast.Module:
    """Syntax tree of a Python file."""
    return ast.parse(text_of(path), filename=str(path))


def is_python(path: Path) -> bool:
    """True for modules, and for commands without a suffix whose first line names Python."""
    if path.suffix == ".py":
        return True
    return path.suffix == "" and text_of(path).startswith("#!") and "python" in text_of(path).split("\n", 1)[0]


def python_files(*folders: str) -> list[Path]:
    """Python files below the given top-level folders, or below the root if none is given."""
    return [path for path in tracked_files() if is_python(path) and (not folders or path.parts[0] in folders)]
