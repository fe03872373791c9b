"""GSM8K's reward, with verl's signature: the number behind the last ``####``, exactly."""

import re
from typing import Any

_FINAL = re.compile(r"#### *(-?[0-9.,]*[0-9])")


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None
) -> float:
    """1.0 for the right final answer, else 0.0. The ground truth is a number, or one of GSM8K's worked answers."""
    expected = final_answer(ground_truth) or ground_truth.strip().replace(",", "")
    return 1.0 if final_answer(solution_str) == expected else 0.0


def final_answer(text: str) -> str | None:
    """The number behind the last ``####``, without the commas between thousands; ``None`` if there is none."""
    found = _FINAL.findall(text)
    return found[-1].replace(",", "") if found else None
