"""The two clocks of a worker. Tests in virtual time bring their own."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Functions without arguments, in seconds; any thread may call them."""

    unix: Callable[[], float] = time.time
    """For what is told to others."""
    elapsed: Callable[[], float] = time.perf_counter
    """For durations: it never jumps."""
