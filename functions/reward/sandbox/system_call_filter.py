"""The seccomp filter of the sandbox, as a classic BPF program. Pure: numbers in, bytes out.

seccomp(2) gives the program a record: the call's number at offset 0, the machine at 4, and argument i as 64 bits at
16 + 8i. Arguments are compared by their low 32 bits, which is all that the kernel reads of those looked at here.
"""

import struct
from collections.abc import Iterator, Sequence

from functions.reward.sandbox.syscalls import ALLOWED, AUDIT_ARCHITECTURE, GUARDED

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_OFFSET, _MACHINE_OFFSET = 0, 4

_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38

_CLONE_THREAD = 0x00010000
# Close-on-exec both ways, "is it a terminal", its size, bytes that wait. Nothing that types into a terminal.
_IOCTLS = (0x5451, 0x5450, 0x5401, 0x5413, 0x541B)
# Whom the kernel signals about a descriptor: a way round kill().
_FCNTL_OWNERS = (8, 10, 15)

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand."""


def filter_program(machine: str, pid: int) -> bytes:
    """The program for a process of that id, eight bytes an instruction. Raises KeyError for an unknown machine."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _instructions(machine, pid))


def _instructions(machine: str, pid: int) -> Iterator[Instruction]:
    yield (_LOAD, 0, 0, _MACHINE_OFFSET)
    yield (_JUMP_IF_EQUAL, 1, 0, AUDIT_ARCHITECTURE[machine])
    # Another instruction set of the same machine has other numbers.
    yield (_RETURN, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER_OFFSET)
    for number in ALLOWED[machine].values():
        yield from _case(number, [(_RETURN, 0, 0, _ALLOW)])
    guarded = GUARDED[machine]
    # A thread of the same process, never another process.
    yield from _case(guarded["clone"], [_argument(0), (_JUMP_IF_ANY_BIT, 0, 1, _CLONE_THREAD), *_verdicts()])
    # Its flags lie in memory, out of sight: the C library then uses clone().
    yield from _case(guarded["clone3"], [(_RETURN, 0, 0, _REFUSE | _ENOSYS)])
    yield from _case(guarded["kill"], _if_argument(0, [pid]))
    yield from _case(guarded["tgkill"], _if_argument(0, [pid]))
    # 0 is the process itself.
    yield from _case(guarded["prlimit64"], _if_argument(0, [0]))
    yield from _case(guarded["ioctl"], _if_argument(1, _IOCTLS))
    yield from _case(guarded["fcntl"], _unless_argument(1, _FCNTL_OWNERS))
    yield (_RETURN, 0, 0, _REFUSE | _EPERM)


def _case(number: int, body: Sequence[Instruction]) -> list[Instruction]:
    """``body``, which returns, for this call alone."""
    return [(_JUMP_IF_EQUAL, 0, len(body), number), *body]


def _argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index)


def _verdicts() -> list[Instruction]:
    return [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | _EPERM)]


def _if_argument(index: int, values: Sequence[int]) -> list[Instruction]:
    tests = [(_JUMP_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_argument(index), *tests, *reversed(_verdicts())]


def _unless_argument(index: int, values: Sequence[int]) -> list[Instruction]:
    tests = [(_JUMP_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_argument(index), *tests, *_verdicts()]
