"""The whole completion, up to surrounding white space."""

from collections.abc import Mapping
from typing import Any

from functions.reward.outcome import Rewarded
from functions.reward.rules.base import BadGroundTruth


def exact_match(completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]) -> Rewarded:
    """1.0 if completion and ground truth are the same text once stripped of surrounding white space, else 0.0.

    Raises BadGroundTruth if the ground truth is missing or blank: an empty completion would earn it.
    """
    if ground_truth is None or not ground_truth.strip():
        raise BadGroundTruth(f"exact_match needs a text as ground truth, the row has {ground_truth!r}")
    answer = completion.strip()
    return Rewarded(reward=1.0 if answer == ground_truth.strip() else 0.0, answer=answer)
