"""The processes of a stack, found by the files that they hold open below its state folder.

So also those are found that lost their parent. A process that has ended and was not waited for yet has no open files.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

FORK_SERVER = "fork-server"
"""How its log is called."""
PROC = Path("/proc")


def processes_of(state_dir: Path) -> set[int]:
    """Processes that have a file below the folder open: controller, fork server, replicas, their children, Redis."""
    below = f"{state_dir.resolve()}/"
    return {pid for pid in _all_pids() if any(target.startswith(below) for target in _open_files(pid))}


def replicas_of(state_dir: Path, function: str = "") -> set[int]:
    """Replicas of a function, or of all functions: the fork server's children, by the log that they write."""
    logs = f"{state_dir.resolve()}/logs"
    return {
        pid
        for pid in _all_pids()
        if _stdout(pid).startswith(f"{logs}/{function}") and _stdout(_parent(pid)).startswith(f"{logs}/{FORK_SERVER}")
    }


def instance_of(replica: int) -> str:
    """The name of a replica, by its process."""
    return Path(_stdout(replica)).stem


def child_with(parent: int, word: str) -> int | None:
    """The child of a process whose command line has the word, if there is one."""
    return next((pid for pid in _all_pids() if _parent(pid) == parent and word in _command_line(pid)), None)


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to each."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _open_files(pid: int) -> list[str]:
    targets = []
    with contextlib.suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                targets.append(os.readlink(descriptor))
    return targets


def _stdout(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(PROC / str(pid) / "fd" / "1")
    return ""


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        # The name before it may hold anything but ends with the last bracket.
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0
