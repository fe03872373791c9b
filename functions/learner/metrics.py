"""Metrics by verl's names, kept as sums and counts so that parts of a batch reduce exactly to the whole.

A mean of means is wrong as soon as the parts differ in size; here a mean is one division at the very end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from functions.learner.rows import TrainRow


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


def batch_metrics(rows: Sequence[TrainRow], rewards: Sequence[float], advantages: Tensor) -> dict[str, float]:
    """What the batch looks like before it is trained on. `advantages` `[B, T]`, as the loss uses them.

    A completion's length counts all its tokens; it was clipped if and only if its finish reason says so, for a
    completion may end in its last allowed token by itself.
    """
    trained = np.concatenate(
        [values[: row.num_tokens][row.loss_mask] for row, values in zip(rows, advantages.numpy(), strict=True)]
    )
    prompt_lengths = [row.prompt_token_ids.size for row in rows]
    completion_lengths = [row.num_tokens for row in rows]
    return {
        **_summary("critic/score", rewards),
        **_summary("critic/rewards", rewards),
        **_summary("critic/advantages", trained),
        **_summary("prompt_length", prompt_lengths),
        **_summary("response_length", completion_lengths),
        "response_length/clip_ratio": float(np.mean([row.finish_reason == "length" for row in rows])),
        "perf/total_num_tokens": float(sum(prompt_lengths) + sum(completion_lengths)),
    }


def _summary(name: str, values: Sequence[float] | np.ndarray) -> dict[str, float]:
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return {f"{name}/{statistic}": 0.0 for statistic in ("mean", "max", "min")}
    return {
        f"{name}/mean": float(array.mean()),
        f"{name}/max": float(array.max()),
        f"{name}/min": float(array.min()),
    }
