"""How many actors sample a batch: the best of all numbers, by expected time and cost.

RLHFless (arXiv 2602.22718, section on actor scaling) takes

    N' = argmin over N of  lambda · T~(N) + (1 - lambda) · C~(N),    T = max_i T(X_i),    C = rho · sum_i T(X_i) · G_i,

T~ and C~ scaled to 0..1 between their least and largest over N_min..N_max, lambda = 0.7. Where all candidates have the
same time (or cost) the paper divides by zero; here that part is 0 then. N_min and N_max are "predefined" there. Here
N_max is what manifest, platform and prompts allow, and N_min the fewest actors that have room for all sequences at once
(in as few waves as N_max has, if that is more than one): below it they wait in waves, or are pre-empted, and the step
is slow without being cheaper; that is where the paper's sweet spot comes from. To the cost of an actor belongs what it
holds without sampling: its cold start, the load of its weights and its drain, unless it is up already.

The scaling has a trap, which the paper notes as a distortion: it forgets magnitudes. Whether more actors cost a
hundredth more or ten times as much, C~ goes from 0 to 1; so lambda = 0.5 is no exchange rate between seconds and
GPU-seconds, and the range N_min..N_max is part of the choice.

Each number is compared with the assignment that suits it, by what that is expected to take with errors in the lengths
(``assignment_choice``): without them it would look as if more actors always made the step shorter. Beyond a dozen, only
numbers that differ by ``FINEST`` are compared, and always the fewest and the most.

Locality makes the first actor start early (``locality``): the paper's overlap constraint then holds for all others, and
only numbers that meet it are candidates, unless none does.

On cores that all replicas share (one machine) an actor has ``threads // N`` of them, and small matrices do not split
well: t threads are ``t ** THREAD_EXPONENT`` times as fast as one, and not at all in what every step costs whatever
runs. More actors than threads only wait for each other, so N_max is the number of threads. The machine is held until
the step ends, whoever computes, so its cost is that of the time, and the fastest number is the cheapest as well.
Between equals it is the larger one, which stands a wrong estimate better. With equal lengths that gives one actor per
thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.scheduling.actor_time import ROUNDING, Floats, Ints, TimedWork, Work
from controller.scheduling.assignment import Arrangement, Assignment, Bools, Fixed, cheapest_cuts, even_cuts
from controller.scheduling.assignment_choice import choose_parts
from controller.scheduling.decode_profile import DecodeProfile

THREAD_EXPONENT = 0.5
"""Two threads were measured 1.24 to 1.5 times as fast as one, on models of a few million parameters."""
SCORE_TIE = 1e-9
FINEST = 0.15
"""Share by which compared numbers of actors differ at least: times are not known to less (``assignment_choice``)."""
ROWS_AT_ONCE = 512
"""Numbers of actors that are compared together: their cuts are a table of as many columns as the most actors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorLimits:
    """What bounds the number of actors, and what one costs besides its sampling."""

    min_actors: int | None = None
    """``None``: as many as have room."""
    max_actors: int
    units_per_actor: float = 1.0
    """GPUs of one actor (tensor parallelism), or cores where there are none: the G of the cost."""
    overhead_s: float = 0.0
    """Seconds that a new actor is held without sampling: cold start, weights, drain."""
    start_s: float = 0.0
    """Part of ``overhead_s`` before a new actor samples; the step waits for it."""
    num_warm: int = 0
    """Actors that are up already and have no overhead."""
    shared_threads: int | None = None
    """Threads of the machine, where all actors compute on the same ones."""
    profile_threads: int = 1
    """Threads of the actor whose profile it is."""
    head_start_s: float | None = None
    """Seconds that the actor beside the learner may take longer than the others (overlap); ``None``: it is no
    matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One number of actors, and what to expect of it."""

    num_actors: int
    time_s: float
    """Of the slowest actor, its start included."""
    cost: float
    """Unit-seconds (GPU-seconds; core-seconds without GPUs) that all actors hold."""
    score: float = 0.0
    """lambda · T~ + (1 - lambda) · C~; the least is chosen."""
    assignment: Fixed = "sorted_equal"
    """That time and cost are of."""
    overlaps: bool = True
    """Whether the start of all others is hidden behind the actor beside the learner."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """All numbers of actors that were compared."""

    table: tuple[Candidate, ...]
    arrangements: Mapping[int, Arrangement]
    """By the number of actors: who gets which part of the sorted work, whatever else may be better."""


def choose_num_actors(num_items: int, num_threads: int, max_actors: int) -> int:
    """The number without any profile of lengths or speed: one per compute thread, at least 1, for so many items."""
    return max(1, min(num_items, num_threads, max_actors))


def fewest_with_room(work: Work, profile: DecodeProfile) -> int:
    """The fewest actors whose places and room hold all sequences at once (N_min); at least 1.

    The room that is needed at once is bounded from below by what is held the moment before a prompt's first sequence
    ends: all sequences of that prompt, and of those whose first one ends later.
    """
    by_places = -(-int(work.counts.sum()) // profile.max_num_sequences)
    if profile.kv_capacity_tokens is None:
        return max(1, by_places)
    order = np.argsort(work.shortest)
    counts, prompts, lengths = work.counts[order], work.prompt_tokens[order], work.shortest[order]
    running = counts[::-1].cumsum()[::-1]
    held = prompts[::-1].cumsum()[::-1] + running * lengths
    return max(1, by_places, int(np.ceil(held.max() / profile.kv_capacity_tokens)))


def fewest_in_waves(with_room: int, most: int) -> int:
    """The fewest of at most ``most`` actors that take no more waves than these, where so many have room for all at
    once.

    With enough actors that is one wave.
    """
    waves = -(-with_room // most)
    return -(-with_room // waves)


def numbers_to_compare(least: int, most: int) -> list[int]:
    """Every number from ``least`` to ``most``, but of large ones only those that differ by a share of ``FINEST``."""
    numbers = [least]
    while numbers[-1] < most:
        numbers.append(min(most, max(numbers[-1] + 1, int(numbers[-1] * (1 + FINEST)))))
    return numbers


def shared_profile(profile: DecodeProfile, num_actors: int, threads: int, profile_threads: int) -> DecodeProfile:
    """The speed of each of so many actors that compute on the same threads, each on its part of them.

    More actors than threads take turns: everything takes that much longer.
    """
    each = max(1, threads // num_actors)
    wait = max(1.0, num_actors / threads)
    work = wait * (profile_threads / each) ** THREAD_EXPONENT
    return replace(
        profile,
        base_s=profile.base_s * wait,
        per_sequence_s=profile.per_sequence_s * work,
        per_context_token_s=profile.per_context_token_s * work,
        prefill_token_s=profile.prefill_token_s * work,
    )


def compare(
    batches: Sequence[tuple[Work, Sequence[int]]],
    profile: DecodeProfile,
    limits: ActorLimits,
    lambda_: float,
    assignment: Assignment = "sorted_unequal",
) -> Comparison:
    """Every number of actors that is given, in that order, each with the cut of its work.

    An ``assignment`` that does not cut sorted work is compared as if it were the equal cut.

    ``batches`` holds the work, cut into enough parts, and the numbers of actors to compare for it.
    """
    rows: list[_Row] = []
    for work, numbers in batches:
        rows += _rows(work, np.array(numbers), profile, limits, lambda_, assignment) if numbers else []
    new = np.maximum(0, np.array([row.num_actors for row in rows]) - limits.num_warm)
    time_s = np.array([row.time_s for row in rows]) + np.where(new > 0, limits.start_s, 0.0)
    if limits.shared_threads is None:
        cost = limits.units_per_actor * (np.array([row.held_s for row in rows]) + new * limits.overhead_s)
    else:
        cost = limits.shared_threads * time_s
    table = tuple(
        Candidate(
            num_actors=row.num_actors,
            time_s=seconds,
            cost=price,
            score=value,
            assignment=row.assignment,
            overlaps=row.overlaps,
        )
        for row, seconds, price, value in zip(
            rows, time_s.tolist(), cost.tolist(), score(time_s, cost, lambda_).tolist(), strict=True
        )
    )
    return Comparison(table=table, arrangements={row.num_actors: row.arrangement for row in rows})


def best(table: Sequence[Candidate], limits: ActorLimits) -> Candidate:
    """The candidate of the least score, of those that overlap if there are any; of equals the cheapest kind."""
    fitting = [one for one in table if one.overlaps] or list(table)
    least = min(one.score for one in fitting)
    equal = [one for one in fitting if one.score <= least + SCORE_TIE]
    return equal[-1] if limits.shared_threads is not None else equal[0]


def score(time_s: Floats, cost: Floats, lambda_: float) -> Floats:
    """lambda · T~ + (1 - lambda) · C~ of each candidate, [n]; a part that is the same for all is 0."""
    return lambda_ * _scaled(time_s) + (1 - lambda_) * _scaled(cost)


def profile_of(profile: DecodeProfile, num_actors: int, limits: ActorLimits) -> DecodeProfile:
    """The speed of one of so many actors."""
    if limits.shared_threads is None:
        return profile
    return shared_profile(profile, num_actors, limits.shared_threads, limits.profile_threads)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    """One number of actors, with the cut of its work."""

    num_actors: int
    arrangement: Arrangement
    assignment: Fixed
    time_s: float
    held_s: float
    overlaps: bool


def _rows(
    work: Work,
    numbers: Ints,
    profile: DecodeProfile,
    limits: ActorLimits,
    lambda_: float,
    assignment: Assignment,
) -> list[_Row]:
    rows: dict[int, _Row] = {}
    places = np.arange(len(work.counts))
    shared = limits.shared_threads is not None
    for alike in _alike(numbers, limits):
        counts = numbers[alike]
        speed = profile_of(profile, int(counts[0]), limits)
        timed = TimedWork(work, speed)
        is_balanced: Bools = np.zeros(len(counts), dtype=bool)
        if assignment == "auto":
            chosen = choose_parts(work, timed, speed, counts, lambda_, shared_threads=shared)
            cuts, cut_s, seconds, is_balanced = chosen.cuts, chosen.cut_seconds, chosen.seconds, chosen.is_balanced
            time_s, held_s = chosen.time_s, chosen.held_s
        else:
            cuts, cut_s = cheapest_cuts(timed, counts) if assignment == "sorted_unequal" else even_cuts(timed, counts)
            seconds, time_s, held_s = cut_s, cut_s.max(axis=1), cut_s.sum(axis=1)
        sorted_as: Fixed = (
            "sorted_equal" if assignment != "auto" and assignment != "sorted_unequal" else "sorted_unequal"
        )
        columns = (counts.tolist(), time_s.tolist(), held_s.tolist(), is_balanced.tolist())
        hidden = _overlap(seconds, counts, limits).tolist()
        for row, (count, slowest_s, sum_s, mixed) in enumerate(zip(*columns, strict=True)):
            rows[count] = _Row(
                num_actors=count,
                arrangement=Arrangement(places=places, cuts=cuts[row, : count + 1], seconds=cut_s[row, :count]),
                assignment="balanced" if mixed else sorted_as,
                time_s=slowest_s,
                held_s=sum_s,
                overlaps=hidden[row],
            )
    return [rows[number] for number in numbers.tolist()]


def _alike(numbers: Ints, limits: ActorLimits) -> list[Ints]:
    """Rows of ``numbers`` whose actors are equally fast, not too many at once."""
    if limits.shared_threads is None:
        rows = np.arange(len(numbers))
        return [rows[first : first + ROWS_AT_ONCE] for first in range(0, len(rows), ROWS_AT_ONCE)]
    speed = [(limits.shared_threads // number, max(limits.shared_threads, number)) for number in numbers.tolist()]
    return [np.array([row for row, of in enumerate(speed) if of == kind]) for kind in dict.fromkeys(speed)]


def _overlap(seconds: Floats, numbers: Ints, limits: ActorLimits) -> Bools:
    """Whether no other actor ends later than the last one, which holds the longest prompts and starts earlier."""
    if limits.head_start_s is None:
        return np.ones(len(numbers), dtype=bool)
    rows = np.arange(len(numbers))
    first = seconds[rows, numbers - 1]
    others = seconds.copy()
    others[rows, numbers - 1] = 0.0
    hidden: Bools = (numbers == 1) | (others.max(axis=1) <= first * (1 + ROUNDING) + limits.head_start_s)
    return hidden


def _scaled(values: Floats) -> Floats:
    least, most = values.min(), values.max()
    return (values - least) / (most - least) if most > least else np.zeros_like(values)
