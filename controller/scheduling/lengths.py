"""How long the completions of a prompt are going to be.

RLHFless (arXiv 2602.22718, section on prompt assignment) estimates a prompt's length as the EWMA over its last W
epochs, with W = 1, the last epoch's value, by default; in the first epoch the length of the ground-truth answer stands
in. Of 70 % of the prompts of GSM8K the length moves by 50 tokens at most from one epoch to the next, and only the
ranking matters for an assignment.

Two things are left open there. A prompt has a group of completions: here all of its lengths are kept, sorted, because
an actor's time follows its longest sequence and its cost all of them; epochs are averaged rank by rank, so that a group
keeps its spread. And the weight of an epoch has no value: here it is the usual ``alpha = 2 / (W + 1)``, which is 1 for
W = 1, as it must be. Where nothing is known of a row it gets what is known of the others. What a step shows of its
groups while it runs is another matter (``remaining``).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Source = Literal["history", "answer", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRecord:
    """What one epoch showed of one row."""

    row_uid: str
    epoch: int
    lengths: tuple[int, ...]
    """Tokens of every sample of the group, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEstimate:
    """Expected tokens of the samples of one prompt, which are exchangeable: the k-th shortest, not the k-th sample."""

    lengths: tuple[float, ...]
    """[group_size], sorted."""
    source: Source

    @property
    def mean(self) -> float:
        """Mean of the group."""
        return sum(self.lengths) / len(self.lengths)

    @property
    def max(self) -> float:
        """The longest of the group."""
        return self.lengths[-1]

    def quantile(self, q: float) -> float:
        """The length that a share ``q`` of the samples does not exceed, linear between samples."""
        return _quantile(self.lengths, q)


def estimate(
    records: Sequence[LengthRecord],
    *,
    answer_tokens: int | None,
    group_size: int,
    default: float,
    window: int = 1,
) -> LengthEstimate:
    """What to expect of a row with these ``records``, the newest last: history, else the answer, else ``default``."""
    seen = [record.lengths for record in records[-window:] if record.lengths]
    if seen:
        return LengthEstimate(
            lengths=_ewma([resample(lengths, group_size) for lengths in seen], window), source="history"
        )
    if answer_tokens is not None:
        return LengthEstimate(lengths=(max(1.0, float(answer_tokens)),) * group_size, source="answer")
    return LengthEstimate(lengths=(max(1.0, float(default)),) * group_size, source="default")


def default_length(known: Sequence[float], max_tokens: int) -> float:
    """The length of a row of which nothing is known: the median of what is ``known`` of others, else the most.

    Only the ranking matters for an assignment, so the most is no worse a guess than any other; for capacity it errs on
    the safe side.
    """
    return statistics.median(known) if known else float(max_tokens)


def resample(lengths: Sequence[float], size: int) -> tuple[float, ...]:
    """``size`` lengths with the distribution of the sorted ``lengths``: quantiles at the middle of each share."""
    if len(lengths) == size:
        return tuple(map(float, lengths))
    if len(lengths) == 0:
        return ()
    count = len(lengths)
    # The rank-th of `size` samples stands for the share (rank + 1/2) / size, and so do the known ones.
    shares = [((rank + 0.5) * count / size - 0.5) / (count - 1) if count > 1 else 0.0 for rank in range(size)]
    return tuple(_quantile(lengths, min(1.0, max(0.0, share))) for share in shares)


def _ewma(epochs: Sequence[tuple[float, ...]], window: int) -> tuple[float, ...]:
    alpha = 2 / (window + 1)
    mean = epochs[0]
    for lengths in epochs[1:]:
        mean = tuple(alpha * new + (1 - alpha) * old for new, old in zip(lengths, mean, strict=True))
    return mean


def _quantile(lengths: Sequence[float], q: float) -> float:
    place = q * (len(lengths) - 1)
    below = math.floor(place)
    above = min(below + 1, len(lengths) - 1)
    return lengths[below] + (place - below) * (lengths[above] - lengths[below])
