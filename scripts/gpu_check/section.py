"""One section in a process of its own: its memory is its own, and it can be ended."""

import importlib
import json
import sys
import time
import traceback
from pathlib import Path

from scripts.gpu_check.plan import Section

INNERMOST = 4
"""Calls of a failure that are told."""


def measure(section: Section, path: Path) -> dict[str, object]:
    """Run a section here; what it noted is in the file all along. Returns status, reason and seconds."""
    # Only what the section needs: what another one needs may not be installed.
    started = time.perf_counter()
    try:
        from scripts.gpu_check.figures import Figures

        module = importlib.import_module(f"scripts.gpu_check.{section.module}")
        module.measure(section, Figures(path))
    except Exception:
        # It ran on a machine that is gone when somebody reads this.
        status, reason = "failed", traceback.format_exc(limit=-INNERMOST)
    else:
        status, reason = "done", ""
    return {"status": status, "reason": reason, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    print(json.dumps(measure(Section(**json.loads(sys.argv[1])), Path(sys.argv[2]))))
