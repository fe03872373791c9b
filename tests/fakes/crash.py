"""A process that dies, or a disk that fails, at the n-th change of a file: by Python's own audit events."""

import contextlib
import sys
from collections.abc import Iterator

CHANGES = frozenset({"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"})


class Crash(BaseException):
    """The process is gone: nothing after it happens either, not even what is to clean up."""


class Fault:
    """What the hook does. Hooks cannot be removed, so it is switched off between uses."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.num_left = 0
        self.lasting = False
        self.has_struck = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.failure is None or not (event in CHANGES or (event == "open" and _writes(arguments))):
            return
        self.num_left -= 1
        if self.num_left < 0:
            failure = self.failure
            self.has_struck = True
            if not self.lasting:
                self.failure = None
            raise failure


def _writes(arguments: tuple[object, ...]) -> bool:
    mode = arguments[1]
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


_fault = Fault()
_hooked = False


@contextlib.contextmanager
def failing(after: int, failure: BaseException, *, lasting: bool) -> Iterator[Fault]:
    """Let ``after`` changes of files succeed and fail the next one, or, if ``lasting``, all that follow.

    The fault tells whether it ``has_struck``, for what fails may be dealt with quietly.
    """
    global _hooked
    if not _hooked:
        sys.addaudithook(_fault)
        _hooked = True
    _fault.failure, _fault.num_left, _fault.lasting, _fault.has_struck = failure, after, lasting, False
    try:
        yield _fault
    finally:
        _fault.failure = None
