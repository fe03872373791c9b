"""A completion behind its prompt, as a model that is trained or that scores reads it.

Shapes: P prompt tokens, T completion tokens of one row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.training.errors import InvalidRows

GroupKey = tuple[str, int]
"""(row_uid, round): which completions are compared with each other. Never the prompt's text or tokens, for two
data rows may hold the same prompt."""

_ARRAYS: dict[str, type] = {
    "prompt_token_ids": np.int64,
    "completion_token_ids": np.int64,
    "loss_mask": np.bool_,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceRow:
    """One completion. Plain sequences become arrays.

    Raises InvalidRows when a part is empty or a length does not fit.
    """

    row_uid: str
    sample: int
    round: int = 0
    """Dynamic sampling draws a prompt's group again in a later round; each round is a group of its own."""
    prompt_token_ids: NDArray[np.integer[Any]]
    """[P], P ≥ 1."""
    completion_token_ids: NDArray[np.integer[Any]]
    """[T], T ≥ 1: sampled tokens and, with tools, inserted ones."""
    loss_mask: NDArray[np.bool_]
    """[T] True where the policy sampled the token and it is to be trained."""

    def __post_init__(self) -> None:
        for name, dtype in _ARRAYS.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=dtype))
        if not self.prompt_token_ids.size or not self.completion_token_ids.size:
            raise InvalidRows(f"{self.label} has an empty prompt or completion; both need at least one token")
        if self.loss_mask.shape != self.completion_token_ids.shape:
            raise InvalidRows(f"{self.label} has loss_mask that do not fit its {self.num_tokens} completion tokens")

    @property
    def label(self) -> str:
        """How messages name the row."""
        return f"row {self.row_uid!r}, round {self.round}, sample {self.sample}"

    @property
    def group(self) -> GroupKey:
        """The key of the completions that this one is compared with."""
        return (self.row_uid, self.round)

    @property
    def num_tokens(self) -> int:
        """T"""
        return self.completion_token_ids.size


Row = TypeVar("Row", bound=SequenceRow)


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows by (row_uid, round, sample). Raises InvalidRows when there are none, or one of them twice."""
    ordered = sorted(rows, key=lambda row: (row.row_uid, row.round, row.sample))
    if not ordered:
        raise InvalidRows("the batch has no rows; a step in which every group was dropped has nothing to train on")
    for row, following in pairwise(ordered):
        if (row.group, row.sample) == (following.group, following.sample):
            raise InvalidRows(f"{row.label} is in the batch twice")
    return ordered
