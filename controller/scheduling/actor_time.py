"""T(X_i): how long an actor takes for the prompts that it is given.

RLHFless (arXiv 2602.22718, section on actor scaling) combines the profiled time per output token with the predicted
lengths, and does not print how. With the lengths of an actor sorted, l_1 <= ... <= l_n, between l_{k-1} and l_k tokens
n - k + 1 sequences run, so

    T = sum_k (l_k - l_{k-1}) · TPOT(n - k + 1, context).

TPOT is affine in running sequences and context tokens (``decode_profile``), so the sum has a closed form, in which
nothing needs to be sorted: every step costs the base, every token its share,

    T = base · steps + sum over sequences of (per_sequence · l + per_context · (P l + l² / 2)),    steps = l_n,

besides the prefill of each prompt, once for its group. The second part is additive, so prefix sums give T of any run of
neighbouring prompts at once.

Room is what makes few actors slow. Beyond it sequences wait, and only the number of steps changes. It is at least the
longest length; all tokens over the sequences that run at once; all token-steps of keys and values over their capacity;
and (j + 1) times the length after j full waves, since whatever the order, j + 1 of so many share one place. The largest
of these is a lower bound for every order, exact for equal lengths, and longest-first order comes near it. Keys and
values of a prompt are held once for its group. An engine that pre-empts computes again what had no room.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.scheduling.decode_profile import DecodeProfile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_WAVES = 8
"""Waves that are told apart. More are as long as all their tokens over the places, to within an eighth."""
ROUNDING = 1e-9
"""Relative error that sums of many floats may have where a time is compared with a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Sequences of one prompt on one actor: a group, or a slice of one."""

    num_prompt_tokens: int
    lengths: tuple[float, ...]
    """Expected tokens of its samples, sorted; at least one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Loads in the order of their longest sequence, shortest first: sums over the sequences of each, all [n]."""

    order: Ints
    """The number of the load at each place."""
    counts: Ints
    prompt_tokens: Floats
    shortest: Floats
    longest: Floats
    tokens: Floats
    context: Floats
    """Token-steps that are read: the prompt for each of its sequences, and what they have generated."""
    kv_steps: Floats
    """Token-steps that are held: the prompt once."""
    footprint: Floats
    """Tokens held if none of it ended early."""

    def arranged(self, places: Ints) -> "Work":
        """What is at these places, in their order."""
        return Work(
            order=self.order[places],
            counts=self.counts[places],
            prompt_tokens=self.prompt_tokens[places],
            shortest=self.shortest[places],
            longest=self.longest[places],
            tokens=self.tokens[places],
            context=self.context[places],
            kv_steps=self.kv_steps[places],
            footprint=self.footprint[places],
        )


def measure(prompt_tokens: Sequence[int], samples: Sequence[Sequence[float]]) -> Work:
    """Sort and sum up the expected lengths of each load's samples. O(sequences) beside the sort."""
    counts = np.fromiter(map(len, samples), dtype=np.int64, count=len(samples))
    prompts = np.array(prompt_tokens, dtype=np.float64)
    lengths = np.fromiter(itertools.chain.from_iterable(samples), dtype=np.float64, count=int(counts.sum()))
    begins = np.cumsum(counts) - counts
    shortest, longest = np.minimum.reduceat(lengths, begins), np.maximum.reduceat(lengths, begins)
    tokens, squares = np.add.reduceat(lengths, begins), np.add.reduceat(lengths**2, begins)
    order = np.lexsort((tokens, longest)).astype(np.int64)
    counts = counts[order]
    prompts, shortest, longest, tokens, squares = (of[order] for of in (prompts, shortest, longest, tokens, squares))
    return Work(
        order=order,
        counts=counts,
        prompt_tokens=prompts,
        shortest=shortest,
        longest=longest,
        tokens=tokens,
        context=prompts * tokens + squares / 2,
        kv_steps=prompts * longest + squares / 2,
        footprint=prompts + tokens,
    )


class TimedWork:
    """Work with the time of every run of neighbours on one actor.

    Positions are 0..n between loads: the run ``[begin, end)`` holds the loads at the places ``begin`` to ``end - 1``.
    All methods take arrays of positions. It is made once per profile, and what it says does not change.
    """

    def __init__(self, work: Work, profile: DecodeProfile, *, is_sorted: bool = True) -> None:
        """``is_sorted``: all of the work, as ``first_within`` needs it; else only within each run that is asked."""
        self.size = len(work.counts)
        base, capacity = profile.base_s, profile.kv_capacity_tokens
        self.share_s = (
            profile.prefill_token_s * work.prompt_tokens
            + profile.per_sequence_s * work.tokens
            + profile.per_context_token_s * work.context
        )
        """What each load costs wherever it runs: all but the base. [n]"""
        self._work = _sums(self.share_s)
        self._longest_s = np.concatenate([[0.0], base * work.longest])
        self._waves = _Waves(work, profile, is_sorted=is_sorted)
        self._throughput: list[Floats] = []
        """Least seconds of the base, by what bounds the steps besides the longest."""
        self._again: Floats | None = None
        """Seconds of computing keys and values again, beyond those that there is room for."""
        self._room_s = 0.0
        if work.counts.sum() > profile.max_num_sequences:
            self._throughput.append(_sums(work.tokens * (base / profile.max_num_sequences)))
        if capacity is not None and work.footprint.sum() > capacity:
            self._throughput.append(_sums(work.kv_steps * (base / capacity)))
            if profile.preempts:
                self._again = _sums(work.footprint * profile.prefill_token_s)
                self._room_s = capacity * profile.prefill_token_s
        self._through_to = self._longest_s + self._work
        self._bounding = [self._work, *(self._work + sums for sums in self._throughput)]
        again = self._again
        self._bounding_again = [] if again is None else [sums + again for sums in self._bounding]

    def seconds(self, begin: Ints, end: Ints) -> Floats:
        """Seconds of each run ``[begin, end)``; 0 where it is empty."""
        steps_s = self._longest_s[end]
        for sums in self._throughput:
            np.maximum(steps_s, sums[end] - sums[begin], out=steps_s)
        for number in range(1, self._waves.most):
            place, wave_s = self._waves.ends(number)
            has_wave = place[end] > begin
            if not has_wave.any():
                break  # no run has more waves
            np.maximum(steps_s, wave_s[end], out=steps_s, where=has_wave)
        steps_s += self._work[end]
        steps_s -= self._work[begin]
        if self._again is not None:
            steps_s += np.maximum(0.0, self._again[end] - self._again[begin] - self._room_s)
        return np.where(end > begin, steps_s, 0.0)

    def first_within(self, end: Ints, bound_s: Floats) -> Ints:
        """The smallest begin of each run that ends at ``end`` and takes at most ``bound_s``; ``end`` if there is none.

        ``seconds`` is the largest of a few sums, so each of them says by one binary search where the run may begin.
        """
        bound = bound_s * (1 + ROUNDING)
        again_s = None if self._again is None else self._again[end] - self._room_s
        if again_s is not None and again_s.max() <= 0.0:
            again_s = None  # even all of the work before these ends has room
        begin = self._begin(0, self._through_to[end] - bound, again_s)
        for number in range(1, len(self._bounding)):
            begin = np.maximum(begin, self._begin(number, self._bounding[number][end] - bound, again_s))
        for number in range(1, self._waves.most):
            place, wave_s = self._waves.ends(number)
            last = place[end]
            if not (last > begin).any():
                break
            within = self._begin(0, wave_s[end] + self._work[end] - bound, again_s)
            begin = np.maximum(begin, np.minimum(last, within))
        return np.minimum(begin, end)

    def _begin(self, number: int, least: Floats, again_s: Floats | None) -> Ints:
        """Where the sums of this number reach ``least``, also with what is computed again up to the end."""
        begin = self._bounding[number].searchsorted(least)
        if again_s is not None:
            begin = np.maximum(begin, self._bounding_again[number].searchsorted(least + again_s))
        return begin


class _Waves:
    """Waves of sequences on one actor, by the end of a run; those that are asked for are worked out once."""

    def __init__(self, work: Work, profile: DecodeProfile, *, is_sorted: bool) -> None:
        self._base = profile.base_s
        self._at_once = _at_once(work, profile, is_sorted=is_sorted)
        self._before = np.concatenate([[0], np.cumsum(work.counts)])
        typical = work.tokens / work.counts
        self._typical = np.maximum.accumulate(typical) if is_sorted else typical
        self._ends: dict[int, tuple[Ints, Floats]] = {}
        self.most = min(MAX_WAVES, -(-int(self._before[-1]) // int(self._at_once.min())))

    def ends(self, number: int) -> tuple[Ints, Floats]:
        """Of the wave after ``number`` others, [n + 1] each: the position before which a run begins that has one, and
        the seconds of all its waves up to this one."""
        if number not in self._ends:
            sequence = self._before - 1 - number * self._at_once
            load = self._before.searchsorted(sequence, side="right") - 1
            exists = sequence >= 0
            seconds = self._base * (number + 1) * self._typical[np.maximum(load, 0)]
            self._ends[number] = np.where(exists, load + 1, 0), np.where(exists, seconds, 0.0)
        return self._ends[number]


def actor_seconds(loads: Sequence[Load], profile: DecodeProfile) -> float:
    """T of one actor that is given these loads; 0 for none."""
    if not loads:
        return 0.0
    work = TimedWork(measure([load.num_prompt_tokens for load in loads], [load.lengths for load in loads]), profile)
    return float(work.seconds(np.array([0]), np.array([work.size]))[0])


def _at_once(work: Work, profile: DecodeProfile, *, is_sorted: bool) -> Ints:
    """Sequences that run at once in a run that ends at each position, [n + 1]; non-increasing if sorted."""
    most = np.full(len(work.counts) + 1, profile.max_num_sequences, dtype=np.int64)
    if profile.kv_capacity_tokens is not None:
        one = work.prompt_tokens / work.counts + work.longest
        one = np.maximum.accumulate(one) if is_sorted else one
        most[1:] = np.clip(profile.kv_capacity_tokens // one, 1, profile.max_num_sequences)
    return most


def _sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])
