"""The example's reward: 1 for the right number after the last `#`, else 0."""

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """Space around the number does not count: a model that answers line by line ends with a new line."""
    _, mark, answer = solution_str.rpartition("#")
    return float(bool(mark) and answer.strip() == ground_truth)
