"""The seccomp program, run step by step as the kernel would, for both machines."""

import struct

import pytest

from functions.reward.sandbox.syscalls import ALLOWED, AUDIT_ARCHITECTURE, GUARDED
from functions.reward.sandbox.system_call_filter import filter_program

PID = 4711
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026

FORBIDDEN = {
    "x86_64": {"socket": 41, "connect": 42, "fork": 57, "vfork": 58, "execve": 59, "ptrace": 101, "truncate": 76}
    | {"chmod": 90, "chown": 92, "setuid": 105, "mount": 165, "unshare": 272, "bpf": 321, "io_uring_setup": 425}
    | {"process_vm_readv": 310, "pidfd_send_signal": 424, "execveat": 322, "link": 86, "memfd_create": 319},
    "aarch64": {"socket": 198, "connect": 203, "execve": 221, "ptrace": 117, "truncate": 45, "mount": 40}
    | {"unshare": 97, "bpf": 280, "io_uring_setup": 425, "process_vm_readv": 270, "fchmodat": 53, "execveat": 281},
}


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the program returns for a call."""
    architecture = AUDIT_ARCHITECTURE[machine] if architecture is None else architecture
    padded = [*arguments, *[0] * (6 - len(arguments))]
    record = struct.pack("<IIQ6Q", number, architecture, 0, *(value & (2**64 - 1) for value in padded))
    program = filter_program(machine, PID)
    steps = [struct.unpack_from("=HBBI", program, place) for place in range(0, len(program), 8)]
    place = loaded = 0
    while True:
        operation, if_true, if_false, operand = steps[place]
        place += 1
        match operation:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", record, operand)
            case 0x15:
                place += if_true if loaded == operand else if_false
            case 0x45:
                place += if_true if loaded & operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


@pytest.mark.parametrize("machine", AUDIT_ARCHITECTURE)
def test_what_is_listed_passes_and_the_rest_does_not(machine: str) -> None:
    assert {verdict(machine, number) for number in ALLOWED[machine].values()} == {ALLOW}
    listed = {*ALLOWED[machine].values(), *GUARDED[machine].values()}
    assert {verdict(machine, number) for number in range(500) if number not in listed} == {EPERM}
    for name, number in FORBIDDEN[machine].items():
        assert verdict(machine, number) == EPERM, name


@pytest.mark.parametrize("machine", AUDIT_ARCHITECTURE)
def test_threads_are_made_and_processes_are_not(machine: str) -> None:
    guarded = GUARDED[machine]
    assert verdict(machine, guarded["clone"], 0x3D0F00) == ALLOW
    assert verdict(machine, guarded["clone"], 0x01200011) == EPERM
    assert verdict(machine, guarded["clone3"], 0x3D0F00) == ENOSYS


@pytest.mark.parametrize("machine", AUDIT_ARCHITECTURE)
def test_only_the_process_itself_is_signalled_and_limited(machine: str) -> None:
    guarded = GUARDED[machine]
    for name in ("kill", "tgkill"):
        assert verdict(machine, guarded[name], PID) == ALLOW
        for other in (0, 1, -1, PID + 1):
            assert verdict(machine, guarded[name], other) == EPERM
    assert verdict(machine, guarded["prlimit64"], 0) == ALLOW
    assert verdict(machine, guarded["prlimit64"], 1) == EPERM


@pytest.mark.parametrize("machine", AUDIT_ARCHITECTURE)
def test_descriptors_signal_nobody_and_type_nowhere(machine: str) -> None:
    guarded = GUARDED[machine]
    assert verdict(machine, guarded["ioctl"], 0, 0x5401) == ALLOW
    assert verdict(machine, guarded["ioctl"], 0, 0x5412) == EPERM
    assert verdict(machine, guarded["fcntl"], 0, 1) == ALLOW
    assert [verdict(machine, guarded["fcntl"], 0, command) for command in (8, 10, 15)] == [EPERM] * 3


def test_another_instruction_set_ends_the_process() -> None:
    assert verdict("x86_64", 1, architecture=0x40000003) == KILL
    assert verdict("x86_64", 1 | 0x40000000) == EPERM
