"""Which actor samples which prompts.

RLHFless (arXiv 2602.22718, section on prompt assignment) sorts the prompts by expected length and cuts them into
contiguous parts of equal count: no other parts of equal sizes have a smaller sum of longest lengths, so actors with
short prompts end early and are released. But the actor of the longest prompts then has the most tokens too, and the
step becomes longer than with mixed parts. Cuts need not be equal: ``unequal`` moves them so that no actor takes longer
than the slowest one of the equal cut, and the cost is the least under that bound.

That is a greedy walk. From the longest prompts down, each actor gets as many as end within the bound. By induction
every cut is then at the lowest position that any cut within the bound can have, and since an actor costs its longest
prompt besides what is additive, lower cuts cost less: no other cut within the bound is cheaper (within room; beyond it
the number of waves counts too, and the equal cut is kept where it is better). Assignment is by prompt, so that a group
meets in one actor and its prompt is prefilled once.

Mixed parts are ``balanced``, the longest first to the actor with the least so far (LPT), ``random``, which is seeded,
and ``in_order``, as the batch comes; the last two know no lengths.
"""

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.scheduling.actor_time import ROUNDING, Floats, Ints, TimedWork, Work
from controller.scheduling.decode_profile import DecodeProfile

Bools = NDArray[np.bool_]
T = TypeVar("T")

Assignment = Literal["auto", "sorted_unequal", "sorted_equal", "random", "balanced", "in_order"]
"""``auto`` is the best of the sorted ones and the balanced one (``assignment_choice``)."""
Fixed = Literal["sorted_unequal", "sorted_equal", "random", "balanced", "in_order"]


ROWS_AT_ONCE = 64
"""Numbers of actors that are timed together: few enough for their times to stay in a processor's cache."""


def assign_in_order(items: Sequence[T], num_actors: int) -> tuple[tuple[T, ...], ...]:
    """Cut ``items`` into ``num_actors`` contiguous parts whose sizes differ by at most one."""
    size, extra = divmod(len(items), num_actors)
    parts, start = [], 0
    for actor in range(num_actors):
        end = start + size + (actor < extra)
        parts.append(tuple(items[start:end]))
        start = end
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrangement:
    """Who gets what."""

    places: Ints
    """Places of the sorted work in the order of the actors; by length within an actor, the shortest first. [n]"""
    cuts: Ints
    """Where each actor begins, and the end. [num_actors + 1]"""
    seconds: Floats
    """Of each actor. [num_actors]"""

    def __len__(self) -> int:
        return len(self.seconds)

    def timed(self, work: Work, profile: DecodeProfile) -> Floats:
        """Seconds of each actor at the speed of another profile."""
        timed = TimedWork(work.arranged(self.places), profile, is_sorted=False)
        return timed.seconds(self.cuts[:-1], self.cuts[1:])

    def of_actor(self, actor: int) -> list[int]:
        """Places of one actor, the longest first: what starts first is not what ends last."""
        part: list[int] = self.places[self.cuts[actor] : self.cuts[actor + 1]][::-1].tolist()
        return part


def arrange(work: Work, profile: DecodeProfile, num_actors: int, assignment: Fixed, seed: int = 0) -> Arrangement:
    """Assign the work to so many actors, each of which gets something; ``seed`` is that of a random assignment."""
    size = len(work.counts)
    count = np.array([num_actors])
    match assignment:
        case "sorted_unequal" | "sorted_equal":
            timed = TimedWork(work, profile)
            cuts, seconds = (cheapest_cuts if assignment == "sorted_unequal" else even_cuts)(timed, count)
            return Arrangement(places=np.arange(size), cuts=cuts[0], seconds=seconds[0])
        case "in_order" | "random":
            batch = np.argsort(work.order)
            order = batch if assignment == "in_order" else batch[shuffled(size, seed)]
            actor_of = np.empty(size, dtype=np.int64)
            actor_of[order] = np.repeat(np.arange(num_actors), np.diff(equal_cuts(size, count)[0]))
        case "balanced":
            actor_of = balanced(profile.base_s * work.longest, TimedWork(work, profile).share_s, num_actors)
    return _gathered(work, profile, actor_of, num_actors)


def shuffled(size: int, seed: int) -> Ints:
    """0..size - 1 in an order that is a function of the seed."""

    def draw(place: int) -> bytes:
        return hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8).digest()

    return np.array(sorted(range(size), key=draw), dtype=np.int64)


def balanced(base_s: Floats, share_s: Floats, num_actors: int) -> Ints:
    """The actor of each place: the longest first, each to the actor that has the least seconds so far (LPT).

    An actor has the base of its longest, which is its first, and the share of all that it is given.
    """
    actors = [(0.0, -number) for number in range(num_actors)]
    actor_of = np.empty(len(share_s), dtype=np.int64)
    places = zip(range(len(share_s) - 1, -1, -1), base_s[::-1].tolist(), share_s[::-1].tolist(), strict=True)
    for place, base, share in places:
        total, actor = actors[0]
        actor_of[place] = -actor
        heapq.heapreplace(actors, ((total or base) + share, actor))
    return actor_of


def equal_cuts(size: int, num_actors: Ints) -> Ints:
    """Cuts of equal counts for each of the numbers of actors, [len(num_actors), max + 1].

    Row r holds the positions 0 = c_0 < ... < c_N = size, and ``size`` from there on. The counts differ by one at most,
    larger ones first, where the prompts are short.
    """
    actor = np.arange(int(num_actors.max()) + 1)[None, :]
    count, extra = np.divmod(size, num_actors[:, None])
    cuts = actor * count
    cuts += np.minimum(actor, extra)
    return np.minimum(cuts, size, out=cuts)


def unequal_cuts(work: TimedWork, num_actors: Ints, bounds_s: Floats) -> Ints:
    """The cheapest cuts within each bound, for each of the numbers of actors: rows as ``equal_cuts`` has them.

    Every actor gets something. A bound that no cut meets is exceeded by the first actor.
    """
    rows = np.argsort(-num_actors, kind="stable")
    wanted, bounds = num_actors[rows], bounds_s[rows]
    most = int(wanted[0])
    # The actor that is given its part as the n-th leaves at least one each to those that are left.
    begins = wanted[None, :] - np.arange(most)[:, None]
    end = np.full(len(rows), work.size, dtype=np.int64)
    # Rows are sorted by their number of actors, so those that still have actors left are a beginning.
    alive = np.searchsorted(-wanted, -np.arange(1, most + 1), side="right").tolist()
    for given in range(1, most):
        count = alive[given]
        end, least = end[:count], begins[given, :count]
        end = np.minimum(np.maximum(work.first_within(end, bounds[:count]), least), end - 1)
        if (end == least).all():
            break  # each of the others gets one
        begins[given, :count] = end
    cuts = np.full((len(rows), most + 1), work.size, dtype=np.int64)
    cuts[:, 0] = 0
    for column, (row, number) in enumerate(zip(rows.tolist(), wanted.tolist(), strict=True)):
        # The actors of a row were given their parts in turn from its last one on.
        cuts[row, 1:number] = begins[number - 1 : 0 : -1, column]
    return cuts


def run_seconds(work: TimedWork, cuts: Ints) -> Floats:
    """Seconds of each actor of each row of cuts, [rows, max actors]; 0 beyond a row's number of actors."""
    seconds = np.zeros((cuts.shape[0], cuts.shape[1] - 1))
    for first in range(0, len(cuts), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        # Rows of few actors end early: what is beyond is 0.
        width = max(1, int((cuts[rows] < work.size).sum(axis=1).max()))
        seconds[rows, :width] = work.seconds(cuts[rows, :width], cuts[rows, 1 : width + 1])
    return seconds


def even_cuts(work: TimedWork, num_actors: Ints) -> tuple[Ints, Floats]:
    """Equal cuts and their seconds."""
    cuts = equal_cuts(work.size, num_actors)
    return cuts, run_seconds(work, cuts)


def cheapest_cuts(work: TimedWork, num_actors: Ints) -> tuple[Ints, Floats]:
    """Unequal cuts and their seconds, where they are no slower and no dearer than the equal ones; else those."""
    equal, equal_s = even_cuts(work, num_actors)
    unequal = unequal_cuts(work, num_actors, equal_s.max(axis=1))
    unequal_s = run_seconds(work, unequal)
    slack = 1 + 2 * ROUNDING
    no_slower = unequal_s.max(axis=1) <= equal_s.max(axis=1) * slack
    worse = ~(no_slower & (unequal_s.sum(axis=1) <= equal_s.sum(axis=1) * slack))
    unequal[worse], unequal_s[worse] = equal[worse], equal_s[worse]
    return unequal, unequal_s


def _gathered(work: Work, profile: DecodeProfile, actor_of: Ints, num_actors: int) -> Arrangement:
    """The arrangement that gives each place to its actor."""
    places = np.argsort(actor_of, kind="stable").astype(np.int64)
    cuts = np.searchsorted(actor_of[places], np.arange(num_actors + 1)).astype(np.int64)
    untimed = Arrangement(places=places, cuts=cuts, seconds=np.zeros(num_actors))
    return replace(untimed, seconds=untimed.timed(work, profile))
