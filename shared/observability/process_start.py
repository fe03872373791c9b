"""When this process began: before its first import, which may be seconds before its first line of its own."""

import os
import time
from pathlib import Path

_STAT = Path("/proc/self/stat")
_START_TIME_FIELD = 19
"""Of ``/proc/PID/stat`` after the name in parentheses: clock ticks between the machine's start and the process's."""


def process_started_at() -> float:
    """Unix time, seconds. Of a forked process: the fork. Where the kernel does not tell (not Linux): now."""
    if not _STAT.exists():
        return time.time()
    ticks = int(_STAT.read_text().rpartition(")")[2].split()[_START_TIME_FIELD])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s
