"""Which assignment suits so many actors best: sorted and cut, and where, or mixed.

RLHFless sorts prompts by expected length (``assignment``). That is cheap where a step mostly costs its base, since
actors with short prompts end early, and slow where it mostly costs what runs, since the actor of the longest prompts
has the most tokens too. Which of the two a replica is depends on the model, the machine and the batch; its profile says
so. This choice is not the paper's. For each number of actors these are compared:

    the equal cut of the sorted prompts, which is the paper's
    the cheapest cuts within a bound of the time, for some bounds below that of the equal cut
    balanced parts: the most even times, whatever they cost

by lambda · ln T + (1 - lambda) · ln C, as everywhere where two ways of the same thing are weighed. It knows magnitudes:
a hundredth less time is worth about two hundredths of cost at lambda 0.7. On cores that all actors share the cost is
that of the time.

Lengths are estimates, and the more alike the times of a plan are, the later its last actor is: so T and C are what is
to be expected with errors, not the plan's own. A prompt differs by ``ROW_SPREAD`` from what is expected of it.

    What is longest was partly longest by chance. Of the variance v of the logarithms of the longest lengths the part
    s² is noise, so they are drawn to their mean by 1 - s² / v (James and Stein, 1961).
    Of an actor's prompts any may be the longest in the end. Independent Fréchet variables of shape a have a maximum of
    the same kind, so the expected longest of some of mean l_k is (sum of l_k ** a) ** (1 / a): again prefix sums tell
    it of every run of neighbours. What each token costs adds up, with the variances.
    The last of several actors is expected at (sum of T_i ** a) ** (1 / a), by the same rule.

Balanced parts are not made for each number of actors. Dealt out from the longest on, the first N prompts go to an actor
each, and what else each token costs fills the actors up to the same level, so their times are known in a closed form.
"""

from dataclasses import dataclass

import numpy as np

from controller.scheduling.actor_time import Floats, Ints, TimedWork, Work
from controller.scheduling.assignment import Bools, even_cuts, run_seconds, unequal_cuts
from controller.scheduling.decode_profile import DecodeProfile

ROW_SPREAD = 0.2
"""Relative standard deviation of a prompt's tokens around what is expected: about as RLHFless measured from one epoch
to the next (70 % of GSM8K's prompts within 50 tokens)."""
LENGTH_SHAPE = 8
"""Of the distribution of a prompt's longest length: a relative spread of 16 %. A power of two, as all shapes."""
LAST_SHAPE = 16
"""Of the distribution of an actor's time, in which the errors of its prompts level out: a spread of 8 %."""
BOUNDS = (0.5, 0.1)
"""Where the bounds lie between the least time that there can be (0) and that of the equal cut (1)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenParts:
    """For each number of actors the best assignment."""

    cuts: Ints
    """The best of the sorted ones, [rows, max actors + 1], as ``equal_cuts`` has them."""
    cut_seconds: Floats
    """Of each actor with these cuts. [rows, max actors]"""
    seconds: Floats
    """Of each actor with the best assignment, the one with the longest prompt last. [rows, max actors]"""
    time_s: Floats
    """Expected, of whichever is the last. [rows]"""
    held_s: Floats
    """Expected, of all together. [rows]"""
    is_balanced: Bools
    """Whether that is the balanced one. [rows]"""


def choose_parts(
    work: Work, timed: TimedWork, profile: DecodeProfile, num_actors: Ints, lambda_: float, *, shared_threads: bool
) -> ChosenParts:
    """Compare all of them, for each number of actors."""
    rows = np.arange(len(num_actors))
    equal, equal_s = even_cuts(timed, num_actors)
    most_s = equal_s.max(axis=1)
    last = np.array([timed.size])
    least_s = np.maximum(equal_s.sum(axis=1) / num_actors, timed.seconds(last - 1, last))
    bounds = [least_s + share * (most_s - least_s) for share in BOUNDS]
    unequal = unequal_cuts(timed, np.tile(num_actors, len(BOUNDS)), np.concatenate(bounds))
    unequal_s = run_seconds(timed, unequal)
    every_s = np.concatenate([equal_s, unequal_s])
    every = np.concatenate([equal, unequal])
    errors = _Errors(work, timed, profile)
    expected = errors.of_cuts(every, every_s)
    values = weigh(expected, lambda_, shared_threads=shared_threads).reshape(-1, len(rows))
    best = values.argmin(axis=0) * len(rows) + rows
    mixed_s = balanced_seconds(work, timed, profile, num_actors)
    mixed = errors.of_balanced(num_actors, mixed_s)
    is_balanced = weigh(mixed, lambda_, shared_threads=shared_threads) < values.min(axis=0)
    likely = np.where(is_balanced[:, None], mixed, expected[best])
    return ChosenParts(
        cuts=every[best],
        cut_seconds=every_s[best],
        seconds=np.where(is_balanced[:, None], mixed_s, every_s[best]),
        time_s=last_seconds(likely),
        held_s=likely.sum(axis=1),
        is_balanced=is_balanced,
    )


class _Errors:
    """What to expect of an actor's time beyond the plan's."""

    def __init__(self, work: Work, timed: TimedWork, profile: DecodeProfile) -> None:
        self._base_s = profile.base_s
        self._variance = _sums((ROW_SPREAD * timed.share_s) ** 2)
        logs = np.log(work.longest)
        variance = float(logs.var())
        kept = max(0.0, 1 - ROW_SPREAD**2 / variance) if variance > 0 else 0.0
        self._longest = work.longest
        drawn: Floats = np.exp(logs.mean() + kept * (logs - logs.mean()))
        self._unit = float(drawn.max())
        self._powers = (drawn / self._unit) ** LENGTH_SHAPE
        self._sums = _sums(self._powers)

    def of_cuts(self, cuts: Ints, seconds: Floats) -> Floats:
        """The expected seconds of each actor, whose parts are runs of sorted work. [rows, max actors]"""
        end = cuts[:, 1:]
        longest = self._unit * _root(np.diff(self._sums[cuts], axis=1), LENGTH_SHAPE)
        beyond_s = self._base_s * (longest - self._longest[end - 1])
        spread_s = np.sqrt(np.maximum(0.0, np.diff(self._variance[cuts], axis=1)))
        return np.where(end > cuts[:, :-1], seconds + beyond_s + spread_s, 0.0)

    def of_balanced(self, num_actors: Ints, seconds: Floats) -> Floats:
        """The same where each actor has one of the longest prompts, and of the others as many as everybody."""
        column = num_actors[:, None]
        place = np.clip(len(self._longest) - column + np.arange(seconds.shape[1]), 0, len(self._longest) - 1)
        others = self._sums[len(self._longest) - column] / column
        longest = self._unit * _root(self._powers[place] + others, LENGTH_SHAPE)
        spread_s = np.sqrt(self._variance[-1] / column)
        beyond_s = self._base_s * (longest - self._longest[place])
        return np.where(seconds > 0, seconds + beyond_s + spread_s, 0.0)


def weigh(seconds: Floats, lambda_: float, *, shared_threads: bool) -> Floats:
    """lambda · ln T + (1 - lambda) · ln C of each row of expected seconds; less is better."""
    time = np.log(last_seconds(seconds))
    value: Floats = time if shared_threads else lambda_ * time + (1 - lambda_) * np.log(seconds.sum(axis=1))
    return value


def last_seconds(seconds: Floats) -> Floats:
    """The expected time of the last actor of each row."""
    longest = seconds.max(axis=1)
    powers = seconds / longest[:, None]
    for _ in range(LAST_SHAPE.bit_length() - 1):
        powers *= powers
    last: Floats = longest * _root(powers.sum(axis=1), LAST_SHAPE)
    return last


def _root(values: Floats, shape: int) -> Floats:
    """The root of this power of two; of what rounding made negative, 0."""
    found = np.maximum(values, 0.0)
    for _ in range(shape.bit_length() - 1):
        np.sqrt(found, out=found)
    return found


def _sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def balanced_seconds(work: Work, timed: TimedWork, profile: DecodeProfile, num_actors: Ints) -> Floats:
    """About the seconds of each actor with balanced parts, the one with the longest prompt last. [rows, max actors]"""
    actor = np.arange(int(num_actors.max()))[None, :]
    column = num_actors[:, None]
    # The actor at the end has the longest prompt, the one before it the second.
    place = np.clip(timed.size - column + actor, 0, timed.size - 1)
    steps = work.longest[place]
    share = work.tokens.sum() / profile.max_num_sequences
    if profile.kv_capacity_tokens is not None:
        share = max(share, work.kv_steps.sum() / profile.kv_capacity_tokens)
    base_s = profile.base_s * np.maximum(steps, share / column)
    exists = actor < column
    level = (np.where(exists, base_s, 0.0).sum(axis=1) + timed.share_s.sum()) / num_actors
    if profile.kv_capacity_tokens is not None and profile.preempts:
        beyond = np.maximum(0.0, work.footprint.sum() / num_actors - profile.kv_capacity_tokens)
        level += beyond * profile.prefill_token_s
    alone_s: Floats = base_s + timed.share_s[place]
    return np.where(exists, np.maximum(alone_s, level[:, None]), 0.0)
