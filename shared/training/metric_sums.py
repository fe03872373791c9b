"""Metrics as sums and counts, so that parts of a batch reduce exactly to the whole.

A mean of means is wrong as soon as the parts differ in size; here a mean is one division at the very end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class MetricSums:
    """Weighted sums and extremes that are still to be reduced."""

    sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    """(sum, weight) by name."""
    maxima: dict[str, float] = field(default_factory=dict)

    def add(self, sums: Mapping[str, float], weight: float) -> None:
        """Adds values that were summed over `weight` items."""
        for name, value in sums.items():
            total, count = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = (total + value, count + weight)

    def add_maxima(self, values: Mapping[str, float]) -> None:
        """Keeps the larger of each value and what was there."""
        for name, value in values.items():
            self.maxima[name] = max(value, self.maxima.get(name, value))

    def reduce(self) -> dict[str, float]:
        """One number per name; a mean over nothing is 0."""
        means = {name: total / count if count else 0.0 for name, (total, count) in self.sums.items()}
        return means | self.maxima
