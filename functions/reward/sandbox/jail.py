"""Close the doors behind the process that calls it: what it computes from then on can reach nothing."""

import os
import resource
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from functions.reward.sandbox.kernel import (
    Unavailable,
    filter_system_calls,
    give_up_privileges,
    restrict_files,
)

_MAX_OPEN_FILES = 64
_MAX_STACK_BYTES = 64 * 2**20
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/random", "/dev/zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the process may use."""

    cpu_s: int
    memory_bytes: int
    """Address space. It bounds the threads too: each takes a stack."""
    file_bytes: int
    """Of one file, the output among them."""


def enter(folder: Path, limits: Limits) -> None:
    """Lock the calling process in, for good. Raises Unavailable, naming what the machine does not offer.

    Afterwards: no other file than the interpreter's and the system's libraries can be read, none outside ``folder`` be
    written; there are no sockets, programs, further processes, signals to others or capabilities.
    """
    if sys.platform != "linux":
        raise Unavailable(f"Linux: this is {sys.platform}")
    _limit(limits)
    os.chdir(folder)
    readable = _interpreter_files()
    give_up_privileges()
    restrict_files(readable=readable, folder=folder)
    filter_system_calls()


def _limit(limits: Limits) -> None:
    # The second is for the kernel's own kill, should the first one's signal be caught. No limit of processes: it counts
    # all of a user's, in every container of a node, while the filter lets none be made.
    _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)
    _lower(resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes)
    _lower(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES, _MAX_OPEN_FILES)
    _lower(resource.RLIMIT_STACK, _MAX_STACK_BYTES, _MAX_STACK_BYTES)
    _lower(resource.RLIMIT_CORE, 0, 0)


def _lower(kind: int, soft: int, hard: int) -> None:
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(kind, (soft, hard))


def _interpreter_files() -> list[Path]:
    """Standard library, installed packages and shared libraries: code, and no secrets."""
    paths = sysconfig.get_paths()
    places = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [str(Path(prefix) / "lib") for prefix in (sys.base_prefix, sys.prefix)]
    return [Path(place).resolve() for place in (*places, *_SYSTEM_LIBRARIES, *_SYSTEM_FILES)]
