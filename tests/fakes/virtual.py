"""Tests in virtual time: one decorator, and the clock that the stage protocol reads."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec
from unittest import mock

from controller.platforms.simulated.clock import run_virtual, virtual_now
from shared.service import protocol

P = ParamSpec("P")
DAY_S = 24 * 3600.0


class VirtualTime:
    """Stands in for the module ``time`` in the stage protocol, whose replies carry Unix times."""

    time = staticmethod(virtual_now)
    monotonic = staticmethod(virtual_now)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run the coroutine function in virtual time; a day of it at most. Files are not synced: that takes real time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with mock.patch.object(protocol, "time", VirtualTime), mock.patch("os.fsync"):
            run_virtual(test(*args, **kwargs), limit_s=DAY_S)

    return run
