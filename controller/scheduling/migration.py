"""When an actor is cut short, its unfinished sequences move to others, and it is released.

RLHFless (arXiv 2602.22718, section on cut-and-migrate), per actor: once a share tau (0.7) of its completions is done,
it is being delayed, and other running actors have free places for all that is left, what is left moves there. RLHFuse
(arXiv 2409.13221) does it once, for all actors together; that is the end game here: as soon as nothing waits, the tail
is gathered on as few actors as end it in the same time. At tau = 1 an actor with anything left is never cut, and there
is no end game either.

"Delayed" is not defined there, and a cut too many makes the step longer. Here a cut must pay by the decode profile. A
sequence costs its own share of each step wherever it runs; what a released actor saves is the base of every step that
it would still have made, and what it costs is the prefill, or the fetch, of what moves, and the steps by which a target
runs longer than it would have. Time and cost, before and after, are weighed by lambda as in ``prefill_choice``. On
cores that all actors share the cost is that of the time, so nothing is cut that does not end the step sooner.

How much a sequence has still to go is not known. It is expected to be like those samples of its group's estimate
(``lengths``, which the group's finished samples correct) that are longer than it is now; one that has outlasted them
all, after t tokens, or of which nothing is known, is expected to last t more, up to the most. The paper bounds no
sequence's moves; here one moves twice at most, and an actor that is given some is not cut in the same decision, so
nothing goes back and forth.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate

WithKv = Literal["auto", "always", "never"]
Reason = Literal["tau", "end_game"]

MAX_MOVES = 2
"""Moves of one sequence."""
ROUNDING = 1e-9
EQUAL_TIME = 1.05
"""Ratio up to which two times count as equal: what is still to go is known no better."""


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
    move_s: float = 0.3
    """Seconds that what moves stands still, besides its prefill: the report, the decision, the mail, a new lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An actor to be emptied and released."""

    shard: int
    reason: Reason
    with_kv: bool
    """Whether its sequences take their keys and values along, or these are computed again."""
    saved_s: float = 0.0
    """Held seconds that it is expected to save."""


@dataclass(slots=True)
class _Tail:
    """What an actor still has to do, by the moves that are decided."""

    of: ActorProgress
    to_go: list[float] = field(default_factory=list)
    """Tokens that each unfinished sequence is expected to need."""
    context: float = 0.0
    extra_s: float = 0.0
    """Prefill or fetch of what came."""
    free: int = 0
    is_target: bool = False

    def seconds(self, profile: DecodeProfile) -> float:
        """Time to its end: the base for every step, each sequence's share for each of its tokens."""
        if not self.to_go:
            return 0.0
        mean_context = self.context / len(self.to_go)
        each = [
            tokens * (profile.per_sequence_s + profile.per_context_token_s * (mean_context + tokens / 2))
            for tokens in self.to_go
        ]
        steps = max(max(self.to_go), sum(self.to_go) / profile.max_num_sequences)
        return self.extra_s + profile.base_s * steps + sum(each)


def decide_migrations(
    progress: Sequence[ActorProgress],
    profile: DecodeProfile,
    figures: MigrationFigures,
    already_cut: Collection[int] = (),
    estimates: Mapping[str, LengthEstimate] = MappingProxyType({}),
) -> tuple[Cut, ...]:
    """The actors to empty now. Those ``already_cut`` are neither emptied again nor given anything.

    ``estimates`` are the expected lengths of each row's group, as far as they are known.
    """
    if figures.tau >= 1:
        return ()
    tails = [
        _tail(one, estimates) for one in progress if one.shard not in already_cut and one.num_done < one.num_assigned
    ]
    cuts = []
    # The one with the least left first: it is the easiest to place, and frees its replica all the same.
    for tail in sorted(tails, key=lambda tail: (len(tail.to_go), tail.of.shard)):
        if tail.of.num_done >= figures.tau * tail.of.num_assigned - ROUNDING:
            cuts += _try(tail, tails, profile, figures, "tau")
    if figures.end_game and not any(tail.of.num_waiting for tail in tails):
        for tail in sorted(tails, key=lambda tail: (len(tail.to_go), tail.of.shard)):
            cuts += _try(tail, tails, profile, figures, "end_game")
    return tuple(cuts)


def expected_rest(num_tokens: int, max_tokens: int, estimate: LengthEstimate | None = None) -> float:
    """Tokens that a sequence of ``num_tokens`` is expected to need still; at least 1, at most up to ``max_tokens``."""
    longer = [length - num_tokens for length in estimate.lengths if length > num_tokens] if estimate else []
    rest = sum(longer) / len(longer) if longer else float(num_tokens)
    return max(1.0, min(rest, float(max_tokens - num_tokens)))


def keeps_kv(with_kv: WithKv, profile: DecodeProfile, bandwidth_bytes_per_s: float | None) -> bool:
    """Whether fetching keys and values is quicker than computing them: into the store and out of it, per token."""
    if with_kv != "auto":
        return with_kv == "always"
    if bandwidth_bytes_per_s is None or profile.kv_bytes_per_token == 0:
        return False
    return _fetch_token_s(profile, bandwidth_bytes_per_s) < profile.prefill_token_s


def _try(
    tail: _Tail, tails: Sequence[_Tail], profile: DecodeProfile, figures: MigrationFigures, reason: Reason
) -> list[Cut]:
    """Move everything of an actor if there is room, no sequence moves too often, and it pays."""
    targets = [other for other in tails if other is not tail and other.to_go and other.free > 0]
    if not tail.to_go or tail.is_target or tail.of.most_moves >= MAX_MOVES:
        return []
    if sum(target.free for target in targets) < len(tail.to_go):
        return []
    kept = keeps_kv(figures.with_kv, profile, figures.bandwidth_bytes_per_s)
    token_s = profile.prefill_token_s
    if kept and figures.bandwidth_bytes_per_s is not None and profile.kv_bytes_per_token:
        token_s = _fetch_token_s(profile, figures.bandwidth_bytes_per_s)
    # The actor itself is first; it is empty afterwards.
    involved = [tail, *targets]
    after = [_Tail(of=tail.of), *_given(tail, targets, token_s, figures.move_s)]
    others = [other.seconds(profile) for other in tails if other not in involved]
    before_s, after_s = ([one.seconds(profile) for one in state] for state in (involved, after))
    time_before, time_after = max(before_s + others), max(after_s + others)
    saved = sum(before_s) - sum(after_s)
    cost_before, cost_after = sum(before_s + others), sum(after_s + others)
    if figures.shared_threads:
        pays = time_after < time_before
    elif reason == "end_game":
        pays = saved > 0 and time_after <= time_before * EQUAL_TIME
    else:
        gain = figures.lambda_ * math.log(time_before / time_after)
        pays = saved > 0 and gain + (1 - figures.lambda_) * math.log(cost_before / cost_after) > 0
    if not pays:
        return []
    for target, changed in zip(targets, after[1:], strict=True):
        target.to_go, target.context, target.extra_s = changed.to_go, changed.context, changed.extra_s
        target.free, target.is_target = changed.free, target.is_target or changed.is_target
    tail.to_go = []
    return [Cut(shard=tail.of.shard, reason=reason, with_kv=kept, saved_s=saved)]


def _given(tail: _Tail, targets: Sequence[_Tail], token_s: float, move_s: float) -> list[_Tail]:
    """The targets with what moves: whoever has the most free places takes the next one."""
    after = [
        _Tail(of=one.of, to_go=list(one.to_go), context=one.context, extra_s=one.extra_s, free=one.free)
        for one in targets
    ]
    each = tail.context / len(tail.to_go)
    for tokens in sorted(tail.to_go, reverse=True):
        target = max(after, key=lambda one: one.free)
        target.to_go.append(tokens)
        target.context += each
        target.extra_s += token_s * each + (0.0 if target.is_target else move_s)
        target.free -= 1
        target.is_target = True
    return after


def _tail(progress: ActorProgress, estimates: Mapping[str, LengthEstimate]) -> _Tail:
    to_go = [expected_rest(tokens, progress.max_tokens, estimates.get(row)) for row, _, tokens in progress.running]
    done_tokens = [tokens for _, _, tokens in progress.running]
    typical = sum(done_tokens) / len(done_tokens) if done_tokens else progress.max_tokens / 2
    num_waiting = max(progress.num_waiting, progress.num_assigned - progress.num_done - len(progress.running))
    context = float(max(progress.context_tokens, sum(done_tokens)))
    to_go += [min(2.0 * typical, float(progress.max_tokens))] * num_waiting
    return _Tail(of=progress, to_go=to_go, context=context, free=progress.free_slots)


def _fetch_token_s(profile: DecodeProfile, bandwidth_bytes_per_s: float) -> float:
    return 2 * profile.kv_bytes_per_token / bandwidth_bytes_per_s
