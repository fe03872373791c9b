"""What the sandbox asks of the Linux kernel, by ctypes: Landlock, seccomp, capabilities, no new privileges."""

import ctypes
import os
import signal
import struct
from collections.abc import Iterable
from pathlib import Path

from functions.reward.sandbox.syscalls import AUDIT_ARCHITECTURE
from functions.reward.sandbox.system_call_filter import filter_program

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_CAPSET = {"x86_64": 126, "aarch64": 91}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER = 1

_READ_FILE, _READ_DIR, _WRITE_FILE = 1 << 2, 1 << 3, 1 << 1
# Version 1: execute, write, read, list, remove and make. Later ones know more: 2 moving between folders, 3 truncate,
# 5 device ioctl.
_FIRST_RIGHTS = (1 << 13) - 1
_RIGHTS_SINCE = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_EXECUTE, _MAKE_DEVICES = 1 << 0, (1 << 6) | (1 << 11)
_ALL_NETWORK, _ALL_SCOPES = 0b11, 0b11
_FILE_RIGHTS = _READ_FILE | _WRITE_FILE | 1 << 14


class Unavailable(Exception):
    """A part of the isolation that this machine does not offer."""


def machine() -> str:
    """The machine's name. Raises Unavailable for one whose system calls are not known here."""
    name = os.uname().machine
    if name not in AUDIT_ARCHITECTURE:
        raise Unavailable(f"a known machine: there is no system call table for {name}")
    return name


def give_up_privileges() -> None:
    """End with the parent, show nothing to debuggers, gain nothing by programs, and drop every capability."""
    _call("prctl", _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "ending with its parent (prctl)")
    _call("prctl", _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "an undumpable process (prctl)")
    _call("prctl", _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs (prctl)")
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    nothing = ctypes.create_string_buffer(24)
    _call("capset", _LIBC.syscall(_CAPSET[machine()], header, nothing), "dropping capabilities (capset)")


def restrict_files(*, readable: Iterable[Path], folder: Path) -> None:
    """By Landlock: read what lies under ``readable``, all but programs and devices under ``folder``, and no more.

    Where the kernel can, also: no TCP, no abstract sockets and no signals to the outside.
    """
    version = int(_LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    if version < 1:
        raise Unavailable(
            "Landlock (Linux 5.13 or later with landlock in its lsm list, and a runtime that lets it pass)"
        )
    rights = _FIRST_RIGHTS | sum(right for since, right in _RIGHTS_SINCE.items() if version >= since)
    attributes = struct.pack("=QQQ", rights, _ALL_NETWORK, _ALL_SCOPES)
    attributes = attributes[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = int(_LIBC.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)))
    _call("landlock_create_ruleset", ruleset, "a Landlock ruleset")
    try:
        for path in readable:
            _allow_beneath(ruleset, path, _READ_FILE | _READ_DIR)
        _allow_beneath(ruleset, Path("/dev/null"), _READ_FILE | _WRITE_FILE)
        _allow_beneath(ruleset, folder, rights & ~(_EXECUTE | _MAKE_DEVICES | 1 << 15))
        restricted = _LIBC.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        _call("landlock_restrict_self", restricted, "enforcing Landlock")
    finally:
        os.close(ruleset)


def filter_system_calls() -> None:
    """By seccomp, from now on and for good."""
    program = filter_program(machine(), os.getpid())
    instructions = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(instructions))
    number = _SECCOMP[machine()]
    installed = _LIBC.syscall(
        number, ctypes.c_uint(_SECCOMP_SET_MODE_FILTER), ctypes.c_uint(0), ctypes.create_string_buffer(described)
    )
    _call("seccomp", installed, "a seccomp filter (a kernel with CONFIG_SECCOMP_FILTER)")


def _allow_beneath(ruleset: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not path.is_dir():
            rights &= _FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        added = _LIBC.syscall(_LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        _call("landlock_add_rule", added, f"a Landlock rule for {path}")
    finally:
        os.close(place)


def _call(name: str, result: int, what: str) -> None:
    if result < 0:
        raise Unavailable(f"{what}: {name} failed, {os.strerror(ctypes.get_errno())}")
