"""The interface of a built-in verifier."""

from collections.abc import Mapping
from typing import Any, Protocol

from functions.reward.outcome import Outcome
from functions.reward.signatures import UnusableRow


class BadGroundTruth(UnusableRow, ValueError):
    """The row's ground truth is not one that the rule can compare with."""


class Rule(Protocol):
    """A pure verifier. Raises BadGroundTruth, never scores a row whose ground truth is unusable."""

    def __call__(
        self, completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]
    ) -> Outcome: ...
