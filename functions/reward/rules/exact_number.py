"""The number after the last ``#``, character for character."""

import re
from collections.abc import Mapping
from typing import Any

from functions.reward.outcome import Rewarded
from functions.reward.rules.base import BadGroundTruth

MARK = "#"
# ASCII digits only: `\d` also accepts digits of other scripts.
_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def exact_number(completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]) -> Rewarded:
    """1.0 if everything after the last ``#`` is exactly the ground truth, else 0.0.

    ``6+8+0=14,6+5+1=12,9+3+1=13#1324`` scores 1.0 for ``1324``. What stands before the mark is not looked at.
    Nothing is normalised: no mark, no number, another sign, a leading zero, a space or anything after the number
    scores 0.0, so that there is one right answer and no second spelling of it to learn.

    Raises BadGroundTruth unless the ground truth is a plain number (``-7``, ``1324``, ``0.5``).
    """
    if ground_truth is None or not _PLAIN_NUMBER.fullmatch(ground_truth):
        raise BadGroundTruth(
            f"exact_number needs a plain number such as 1324 as ground truth, the row has {ground_truth!r}"
        )
    _, mark, answer = completion.rpartition(MARK)
    return Rewarded(reward=1.0 if mark and answer == ground_truth else 0.0, answer=answer if mark else None)
