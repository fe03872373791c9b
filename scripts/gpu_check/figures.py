"""What a section writes down as it goes: figures and checks, in a file that is whole after each of them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Figures:
    """The figures and checks of one section. Whoever ends the section early finds what was known by then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.figures: dict[str, Any] = {}
        self.checks: list[dict[str, Any]] = []

    def add(self, **figures: Any) -> None:
        """Note figures by name, with the unit in the name."""
        self.figures.update(figures)
        self._write()

    def check(self, name: str, value: float, *, at_most: float) -> None:
        """Note whether a value keeps its limit."""
        self.checks.append({"name": name, "value": value, "at_most": at_most, "passed": bool(value <= at_most)})
        self._write()

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({"figures": self.figures, "checks": self.checks}))
        partial.rename(self._path)


class Timer:
    """Times work on a device, after everything that was given to it is done."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def run(self, work: Callable[[], T]) -> tuple[float, T]:
        """Seconds and result."""
        self.synchronize()
        started = time.perf_counter()
        result = work()
        self.synchronize()
        return time.perf_counter() - started, result

    def best(self, work: Callable[[], object], repeats: int) -> float:
        """Seconds of the fastest of several times."""
        return min(self.run(work)[0] for _ in range(repeats))

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int | None:
        """The most device memory in tensors since the last reset; None on a CPU, where nobody counts it."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None
