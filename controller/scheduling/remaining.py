"""How many tokens a running sequence still needs.

An estimate (``lengths``) says how long the samples of a group are going to be, and those that matter at the end of a
batch are the ones that outlast it. What they still need is the mean residual life of a length, given how far it is:

    rest(t) = E[L - t | L > t] = integral of S from t on / S(t),        S(t) = P(L > t).

S is that of the batch itself, in which every group has the same distribution up to its scale: a length counts as its
ratio to the centre of its group. The centre is the mean of what was expected, which counts as one sample, of the
samples that have finished, and of the running ones that are beyond what was expected, as far as they are (samples of a
group tell of each other: Seer, arXiv 2511.14617). Finished samples are the short ones, so counting them alone would
make every rest too short; the running ones are right-censored observations of the same distribution, for which

    S(x) = product over finished ratios x_i <= x of (1 - 1 / number of ratios >= x_i)

is the estimate of Kaplan and Meier (1958). The expected lengths of each group count as one finished sample of it, so
that there is a shape before anything has finished. The product says little where few are left and nothing beyond the
last, where the ends of batches are. There the tail is a power law, S(x) = S(u) (u / x)^a from the ratio u on that a
tenth exceeds, with Hill's index for censored ratios, a = finished beyond u / sum of ln(x_i / u) over all beyond u, and
the index 2 as if it had been seen once. A power law's rest is x / (a - 1): at index 2, the least that is believed, what
has lasted t is expected to last t more. So it is where nothing is known of a row, too.

An actor is held until the last of its sequences ends, and of many one is longer than any is expected to be. With the
same S, the longest rest is below x with the probability prod (1 - S_i(t_i + x) / S_i(t_i)), about exp(- their sum).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from controller.scheduling.lengths import LengthEstimate

TAIL_SHARE = 0.1
"""Share of the samples whose lengths the power law describes."""
LEAST_INDEX = 2.0
"""Of the power law. Its mean is infinite at 1."""
HALVINGS = 12
"""Of ``max_tokens``, to find the longest rest."""
NOTHING: Mapping[str, Sequence[int]] = MappingProxyType({})

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Remaining:
    """Residual lives of the samples of a batch."""

    centres: Mapping[str, float]
    """By row: the length whose ratio 1 is."""
    ratios: Floats
    """Where the survival falls, ascending, from 0 to where the tail begins."""
    survival: Floats
    """S from each ratio on."""
    integral: Floats
    """Of S, from 0 to each ratio."""
    tail_index: float

    def tokens(self, row_uids: Sequence[str], num_tokens: Sequence[int], max_tokens: int) -> Floats:
        """What sequences of ``num_tokens`` of these rows are expected to need still, [n]: 1 to what the most leaves."""
        reached, centres = self._scaled(row_uids, num_tokens)
        ratio, last = reached / centres, float(self.ratios[-1])
        place = self._place(ratio)
        alive = self.survival[place]
        tail = float(self.survival[-1]) * last / (self.tail_index - 1)
        within = (self.integral[-1] - self.integral[place] - alive * (ratio - self.ratios[place]) + tail) / alive
        rest = centres * np.where(ratio >= last, ratio / (self.tail_index - 1), within)
        return _bounded(rest, max_tokens - reached)

    def longest(self, row_uids: Sequence[str], num_tokens: Sequence[int], max_tokens: int) -> float:
        """What the one of these sequences needs still that is going to be the last: the median of that."""
        if not row_uids:
            return 0.0
        reached, centres = self._scaled(row_uids, num_tokens)
        alive = self._exceeds(reached / centres)
        low, high = 0.0, float(max_tokens - reached.min())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            # It is below with the probability of exp(-sum), as long as no single one is sure to be beyond.
            num_beyond = float(
                (self._exceeds((reached + middle) / centres) / alive)[reached + middle < max_tokens].sum()
            )
            low, high = (middle, high) if num_beyond > math.log(2) else (low, middle)
        return max(high, float(self.tokens(row_uids, num_tokens, max_tokens).max()))

    def _scaled(self, row_uids: Sequence[str], num_tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """How far they are, and the centres of their rows; of unknown rows one for which they are in the tail."""
        reached = np.array(num_tokens, dtype=np.float64)
        known = np.array([self.centres.get(row, 0.0) for row in row_uids])
        return reached, np.where(known > 0, known, np.maximum(1.0, reached) / self.ratios[-1])

    def _place(self, ratio: Floats) -> Ints:
        return self.ratios.searchsorted(ratio, side="right") - 1

    def _exceeds(self, ratio: Floats) -> Floats:
        """S at each ratio."""
        last = float(self.ratios[-1])
        tail = float(self.survival[-1]) * (last / np.maximum(ratio, last)) ** self.tail_index
        return np.where(ratio >= last, tail, self.survival[self._place(ratio)])


UNKNOWN = Remaining(
    centres={}, ratios=np.array([0.0, 1.0]), survival=np.ones(2), integral=np.array([0.0, 1.0]), tail_index=LEAST_INDEX
)
"""Of rows of which nothing is known."""


def remaining(
    estimates: Mapping[str, LengthEstimate],
    finished: Mapping[str, Sequence[int]] = NOTHING,
    reached: Mapping[str, Sequence[int]] = NOTHING,
) -> Remaining:
    """By what was expected of each row, the lengths of its ``finished`` samples, and how far the running ones are."""
    if not estimates:
        return UNKNOWN
    centres = {
        row: _centre(prior.mean, finished.get(row, ()), reached.get(row, ())) for row, prior in estimates.items()
    }
    expected = {row: one.mean for row, one in estimates.items()}
    ended = _ratios(centres, finished)
    shapes = _ratios(expected, {row: one.lengths for row, one in estimates.items()})
    running = _ratios(centres, reached)
    sizes = np.array([len(one.lengths) for one in estimates.values()])
    weights = [np.ones(len(ended)), np.repeat(1 / sizes, sizes), np.ones(len(running))]
    is_end = np.arange(len(ended) + len(shapes) + len(running)) < len(ended) + len(shapes)
    survival = _Survival.of(np.concatenate([ended, shapes, running]), np.concatenate(weights), is_end)
    return survival.completed(centres)


@dataclass(frozen=True, slots=True, eq=False)
class _Survival:
    """Ratios, sorted, each of a finished length or one that is reached, and the share that exceeds them."""

    at: Floats
    weight: Floats
    is_end: Bools
    values: Floats
    """The ratios, each once."""
    share: Floats
    """S at each value."""

    @classmethod
    def of(cls, at: Floats, weight: Floats, is_end: Bools) -> "_Survival":
        """Kaplan and Meier's product."""
        order = np.argsort(at, kind="stable")
        at, weight, is_end = at[order], weight[order], is_end[order]
        values, first = np.unique(at, return_index=True)
        ends = np.add.reduceat(np.where(is_end, weight, 0.0), first)
        at_risk = np.cumsum(weight[::-1])[::-1][first]
        alive: Floats = np.maximum(0.0, 1 - ends / at_risk)
        return cls(at, weight, is_end, values, alive.cumprod())

    def completed(self, centres: Mapping[str, float]) -> Remaining:
        """The survival up to where few are left, and a power law from there."""
        few = np.flatnonzero(self.share <= TAIL_SHARE)
        body = int(few[0]) if len(few) else len(self.values) - 1
        start = float(self.values[body])
        ratios = np.concatenate([[0.0], self.values[: body + 1]])
        # One more sample than were seen might be beyond all of them.
        least = min(TAIL_SHARE, 1 / (1 + float(self.weight.sum())))
        survival = np.concatenate([[1.0], self.share[:body], [max(least, float(self.share[body]))]])
        return Remaining(
            centres=centres,
            ratios=ratios,
            survival=survival,
            integral=_sums(np.diff(ratios) * survival[:-1]),
            tail_index=self.tail_index(start),
        )

    def tail_index(self, start: float) -> float:
        """Hill's, of the ratios beyond ``start``."""
        beyond = self.at > start
        excess = float((self.weight * np.log(self.at / start, where=beyond, out=np.zeros_like(self.at))).sum())
        num_ended = float(self.weight[beyond & self.is_end].sum())
        return max(LEAST_INDEX, (num_ended + 1) / (excess + 1 / LEAST_INDEX))


def _centre(expected: float, finished: Sequence[int], reached: Sequence[int]) -> float:
    beyond = [tokens for tokens in reached if tokens > expected]
    return max(1.0, (expected + sum(finished) + sum(beyond)) / (1 + len(finished) + len(beyond)))


def _sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _bounded(rest: Floats, most: Floats) -> Floats:
    bounded: Floats = np.maximum(1.0, np.minimum(rest, most))
    return bounded


def _ratios(centres: Mapping[str, float], lengths: Mapping[str, Sequence[float]]) -> Floats:
    """Lengths over the centres of their rows, of the rows that have one."""
    found = (tokens / centres[row] for row, of in lengths.items() if row in centres for tokens in of)
    return np.fromiter(found, dtype=np.float64)
