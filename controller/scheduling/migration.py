"""When an actor is cut short, its unfinished sequences move to others, and it is released.

RLHFless (arXiv 2602.22718, section on cut-and-migrate), per actor: once a share tau (0.7) of its completions is done,
it is being delayed, and other running actors have free places for all that is left, what is left moves there. RLHFuse
(arXiv 2409.13221) does it once, for all actors together; that is the end game here: as soon as nothing waits, the tail
is gathered on as few actors as end it in the same time. At tau = 1 an actor with anything left is never cut, and there
is no end game either.

"Delayed" is not defined there, and a cut too many makes the step longer. Here a cut must pay by the decode profile
(``tails``): what a released actor saves is what it would still have been held for but for the moment until it is free;
what that costs is the prefill, or the fetch, of what moves, its share of each step, and the steps by which a taker runs
longer than it would have. At tau time and cost of the step, before and after, are weighed by lambda as everywhere; the
end game takes no longer, up to ``EQUAL_TIME``. So it is, too, on cores that all actors share: what is released there is
only what a replica asks for, which nobody waits a step longer for.

Who takes what decides what the next cut finds. Spread over all, it leaves everybody something; so it goes to the actors
that are going to be there the longest, as many as it needs, or to one of these alone: whatever pays the most.

How much a sequence has still to go is not known; ``remaining`` says what to expect. The paper bounds no sequence's
moves; here one moves twice at most, and an actor that is given some is not cut in the same decision, so nothing goes
back and forth.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.remaining import UNKNOWN, Remaining
from controller.scheduling.tails import Rest, Tail

WithKv = Literal["auto", "always", "never"]
Reason = Literal["tau", "end_game"]

MAX_MOVES = 2
"""Moves of one sequence."""
ROUNDING = 1e-9
EQUAL_TIME = 1.05
"""Ratio up to which two times to the end of the step count as equal: what is still to go is known no better."""
LEAST_SAVED_S = 0.25
"""Held seconds below which nothing is cut: reports are as old as that."""
LEAST_SHARE = 0.5
"""Share of what an actor would still be held for that a cut has to save. Where less of it is the base, what moves is
slowed down by whatever runs where it comes to, and if it is longer than was thought, the step is longer for little."""
MAX_ALONE = 4
"""Actors that are tried as the only taker: those that are there the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorProgress:
    """How far an actor is, by its last report."""

    shard: int
    instance: str
    at: float
    """Unix seconds of the report."""
    num_assigned: int
    num_done: int
    num_waiting: int
    """Samples that it has not begun."""
    running: tuple[tuple[str, int, int], ...] = ()
    """(row_uid, sample, tokens after the prompt) of what it decodes."""
    free_slots: int
    """Places for sequences beyond those that run or wait."""
    tokens_per_s: float = 0.0
    max_tokens: int
    context_tokens: int = 0
    """Prompt and generated tokens of all running sequences together."""
    most_moves: int = 0
    """Moves of the sequence of its own that has moved the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFigures:
    """Constants of the decision."""

    tau: float = 0.7
    """Share of an actor's completions that must be done."""
    end_game: bool = True
    with_kv: WithKv = "auto"
    lambda_: float = 0.7
    """Weight of time against cost."""
    bandwidth_bytes_per_s: float | None = None
    """Of prefix KV, into the store and out of it, each; ``None`` where it is not known."""
    shared_threads: bool = False
    """Whether all actors compute on the same cores."""
    release_s: float = 0.3
    """Seconds after its report until a cut actor is free: the decision, the mail, and saving what it leaves."""
    wait_s: float = 0.15
    """Seconds that what moves stands still, besides its prefill: it is saved, told of and leased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An actor to be emptied and released."""

    shard: int
    reason: Reason
    with_kv: bool
    """Whether its sequences take their keys and values along, or these are computed again."""
    takers: tuple[tuple[int, int], ...] = ()
    """(shard, sequences): who takes how many of what it leaves."""
    saved_s: float = 0.0
    """Held seconds that it is expected to save."""


@dataclass(slots=True)
class _Actor:
    """An actor, by the moves that are decided."""

    progress: ActorProgress
    rests: tuple[Rest, ...]
    """The longest first."""
    tail: Tail
    free: int
    is_taker: bool = False
    is_cut: bool = False

    @property
    def seconds(self) -> float:
        """Until it is free."""
        return 0.0 if self.is_cut else self.tail.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the step has taken up to now."""

    time_s: float = 0.0
    held_s: float = 0.0
    """Of all its actors together."""


NOTHING_SPENT = Spent()

Takers = tuple[tuple[_Actor, int, Tail], ...]
"""Who takes how many, and its tail then."""


def decide_migrations(
    progress: Sequence[ActorProgress],
    profile: DecodeProfile,
    figures: MigrationFigures,
    already_cut: Collection[int] = (),
    remaining: Remaining = UNKNOWN,
    spent: Spent = NOTHING_SPENT,
) -> tuple[Cut, ...]:
    """The actors to empty now. Those ``already_cut`` are neither emptied again nor given anything.

    ``remaining`` tells what each sequence is expected to need still. Of two ways to go on, time and cost of the whole
    step are compared, with what is ``spent``.
    """
    if figures.tau >= 1:
        return ()
    actors = [
        _actor(one, profile, remaining)
        for one in progress
        if one.shard not in already_cut and one.num_done < one.num_assigned
    ]
    board = _Board(actors, profile, figures, spent)
    cuts = []
    # The one with the least left first: it is the easiest to place, and frees its replica all the same.
    order = sorted(actors, key=lambda actor: (len(actor.rests), actor.progress.shard))
    for actor in order:
        if actor.progress.num_done >= figures.tau * actor.progress.num_assigned - ROUNDING:
            cuts += board.cut(actor, "tau")
    if figures.end_game and not any(actor.progress.num_waiting for actor in actors):
        for actor in order:
            cuts += board.cut(actor, "end_game")
    return tuple(cuts)


def keeps_kv(with_kv: WithKv, profile: DecodeProfile, bandwidth_bytes_per_s: float | None) -> bool:
    """Whether fetching keys and values is quicker than computing them: into the store and out of it, per token."""
    if with_kv != "auto":
        return with_kv == "always"
    if bandwidth_bytes_per_s is None or profile.kv_bytes_per_token == 0:
        return False
    return _fetch_token_s(profile, bandwidth_bytes_per_s) < profile.prefill_token_s


class _Board:
    """All actors, by the moves that are decided."""

    def __init__(
        self, actors: Sequence[_Actor], profile: DecodeProfile, figures: MigrationFigures, spent: Spent
    ) -> None:
        self._figures = figures
        self._spent = spent
        self._keeps_kv = keeps_kv(figures.with_kv, profile, figures.bandwidth_bytes_per_s)
        self._token_s = profile.prefill_token_s
        if self._keeps_kv and figures.bandwidth_bytes_per_s is not None and profile.kv_bytes_per_token:
            self._token_s = _fetch_token_s(profile, figures.bandwidth_bytes_per_s)
        self._by_end = self._sorted(actors)
        self._total_s = sum(one.seconds for one in actors)

    def cut(self, actor: _Actor, reason: Reason) -> list[Cut]:
        """Move everything of an actor if there is room, no sequence moves too often, and it pays: the best way."""
        if actor.is_cut or actor.is_taker or actor.progress.most_moves >= MAX_MOVES:
            return []
        best: tuple[float, float, Takers] | None = None
        for takers in self._ways(actor):
            gain, saved_s = self._gain(actor, takers, reason)
            if (
                saved_s > max(LEAST_SAVED_S, LEAST_SHARE * actor.seconds)
                and gain > 0
                and (best is None or gain > best[0])
            ):
                best = gain, saved_s, takers
        if best is None:
            return []
        _, saved_s, takers = best
        actor.is_cut = True
        for taker, num, tail in takers:
            taker.tail, taker.free, taker.is_taker = tail, taker.free - num, True
        self._by_end = self._sorted(self._by_end)
        self._total_s -= saved_s
        given = tuple((taker.progress.shard, num) for taker, num, _ in takers)
        return [Cut(shard=actor.progress.shard, reason=reason, with_kv=self._keeps_kv, takers=given, saved_s=saved_s)]

    def _sorted(self, actors: Sequence[_Actor]) -> list[_Actor]:
        """Those that go on, the one that is there the longest first."""
        left = [one for one in actors if not one.is_cut]
        return sorted(left, key=lambda one: (-one.seconds, one.progress.shard))

    def _ways(self, actor: _Actor) -> Iterator[Takers]:
        """Who could take everything: one of those that are there the longest, or as many of them as it needs."""
        others = (one for one in self._by_end if one is not actor and one.free > 0)
        alone, left, several = 0, actor.rests, []
        for taker in others:
            if taker.free >= len(actor.rests):
                alone += 1
                yield ((taker, len(actor.rests), self._given(taker, actor, actor.rests)),)
            if left:
                taken, left = left[: taker.free], left[taker.free :]
                several.append((taker, len(taken), self._given(taker, actor, taken)))
                if not left and len(several) > 1:
                    yield tuple(several)
            if not left and alone >= MAX_ALONE:
                return

    def _given(self, taker: _Actor, actor: _Actor, rests: Sequence[Rest]) -> Tail:
        return taker.tail.given(rests, actor.tail.longest, self._token_s, self._figures.wait_s)

    def _gain(self, actor: _Actor, takers: Takers, reason: Reason) -> tuple[float, float]:
        """What a cut gains, above 0 if it pays, and the held seconds that it saves."""
        figures, spent = self._figures, self._spent
        involved = [actor, *(taker for taker, _, _ in takers)]
        changed_s = [figures.release_s, *(tail.seconds for _, _, tail in takers)]
        saved_s = sum(one.seconds for one in involved) - sum(changed_s)
        before_s = self._by_end[0].seconds
        others = (one.seconds for one in self._by_end if all(one is not other for other in involved))
        after_s = max(*changed_s, next(others, 0.0))
        cheaper = math.log((spent.held_s + self._total_s) / (spent.held_s + self._total_s - saved_s))
        if reason == "end_game" or figures.shared_threads:
            gain = cheaper if after_s <= before_s * EQUAL_TIME else 0.0
        else:
            slower = math.log((spent.time_s + after_s) / (spent.time_s + before_s))
            gain = (1 - figures.lambda_) * cheaper - figures.lambda_ * slower
        return gain, saved_s


def _actor(progress: ActorProgress, profile: DecodeProfile, remaining: Remaining) -> _Actor:
    rows = [row for row, _, _ in progress.running]
    tokens = [count for _, _, count in progress.running]
    expected = remaining.tokens(rows, tokens, progress.max_tokens).tolist()
    longest = remaining.longest(rows, tokens, progress.max_tokens)
    num_prompt = max(0.0, (progress.context_tokens - sum(tokens)) / len(tokens)) if tokens else 0.0
    rests = [Rest(tokens=rest, context=num_prompt + count) for rest, count in zip(expected, tokens, strict=True)]
    # Of what waits only the number is reported.
    typical = (sum(expected) + sum(tokens)) / len(tokens) if tokens else progress.max_tokens / 2
    num_waiting = max(progress.num_waiting, progress.num_assigned - progress.num_done - len(tokens))
    rests += [Rest(tokens=typical, context=num_prompt)] * num_waiting
    rests.sort(key=lambda rest: -rest.tokens)
    return _Actor(progress, tuple(rests), Tail.of(profile, rests, longest), progress.free_slots)


def _fetch_token_s(profile: DecodeProfile, bandwidth_bytes_per_s: float) -> float:
    return 2 * profile.kv_bytes_per_token / bandwidth_bytes_per_s
