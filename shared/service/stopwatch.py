"""Where the time of one call goes."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True, kw_only=True)
class Stopwatch:
    """Adds up stretches of a call, in seconds, by what they were spent on."""

    load_s: float = 0.0
    compute_s: float = 0.0
    store_s: float = 0.0

    @contextlib.contextmanager
    def measure(self, kind: Literal["load", "compute", "store"]) -> Iterator[None]:
        """Add the block's duration to ``kind``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            field = f"{kind}_s"
            setattr(self, field, getattr(self, field) + time.perf_counter() - began)
