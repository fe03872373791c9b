"""Where prompts are prefilled: in each actor, which computes a prompt once for its group, or apart and shipped.

RLHFless (arXiv 2602.22718, section on deduplicated prefill) always prefills apart, on the learner's GPUs, and ships the
keys and values. An engine that prefills a prompt once for its samples saves the same (n - 1) / n wherever a group meets
in one actor, as it does here. Prefilling apart then saves only what several actors would repeat: prompts whose group is
split, and beginnings that prompts have in common. It costs moving every token's keys and values, twice: into the store
and out of it. It pays where prefill is slow, keys and values are small and the way is wide.

Both ways are compared by the logarithms of their time and cost, weighed by lambda as the number of actors is: the units
cancel, and no scale between a least and a largest is needed for two candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Mode = Literal["auto", "in_actor", "disaggregated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFigures:
    """What both ways are made of."""

    actor_tokens: Sequence[int]
    """Prompt tokens that each actor would compute."""
    distinct_tokens: int
    """Tokens to compute where everything common is computed once, by one replica."""
    prefill_token_s: float
    """Seconds per token, in an actor."""
    apart_token_s: float
    """Seconds per token, in the replica that prefills apart."""
    kv_bytes_per_token: int
    """0 where it is not known."""
    bandwidth_bytes_per_s: float | None
    """Into the store and out of it, each; ``None`` where it is not known."""
    round_trip_s: float = 0.0
    """Seconds that a transfer takes whatever its size."""
    decode_s: float = 0.0
    """Seconds that the slowest actor decodes after its prefill."""
    units_per_actor: float = 1.0
    apart_units: float = 1.0
    """GPUs (or cores) of the replica that prefills apart."""
    is_available: bool = True
    """Whether there is a function that prefills apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPlan:
    """Which way, and what it is expected to take."""

    mode: Literal["in_actor", "disaggregated"]
    reason: str
    prefill_s: float
    """Until the first replica has what it needs to decode."""
    transfer_s: float
    """Of it, what the slowest actor waits for keys and values."""
    num_tokens: int
    """Tokens that are computed, over all replicas."""

    @property
    def is_apart(self) -> bool:
        """Whether prompts are prefilled apart."""
        return self.mode == "disaggregated"

    @property
    def apart_s(self) -> float:
        """Seconds before actors can fetch anything."""
        return self.prefill_s - self.transfer_s if self.is_apart else 0.0


def choose_prefill(figures: PrefillFigures, mode: Mode, lambda_: float) -> PrefillPlan:
    """The cheaper way by expected time and cost, or the one that is forced."""
    local = PrefillPlan(
        mode="in_actor",
        reason="",
        prefill_s=figures.prefill_token_s * max(figures.actor_tokens, default=0),
        transfer_s=0.0,
        num_tokens=sum(figures.actor_tokens),
    )
    if mode == "in_actor":
        return _because(local, "forced by schedule.prefill.mode")
    if not figures.is_available:
        return _because(local, "no function prefills apart")
    if figures.bandwidth_bytes_per_s is None or figures.kv_bytes_per_token == 0:
        if mode == "auto":
            return _because(local, "size or speed of prefix KV is not measured yet")
        return _because(_apart(figures, 0.0), "forced by schedule.prefill.mode")
    token_s = figures.kv_bytes_per_token / figures.bandwidth_bytes_per_s
    apart = _apart(figures, token_s)
    if mode == "disaggregated":
        return _because(apart, "forced by schedule.prefill.mode")
    gain = lambda_ * _log_ratio(_seconds(figures, local), _seconds(figures, apart))
    gain += (1 - lambda_) * _log_ratio(_cost(figures, local, 0.0), _cost(figures, apart, token_s))
    if gain > 0:
        saved = local.num_tokens - apart.num_tokens
        return _because(apart, f"{saved} fewer tokens to compute outweigh the transfer")
    return _because(local, "shipping keys and values takes longer than computing them where they are needed")


def _apart(figures: PrefillFigures, token_s: float) -> PrefillPlan:
    """Everything distinct in one replica, then into the store, then each actor's part out of it."""
    transfer_s = token_s * max(figures.actor_tokens, default=0) + figures.round_trip_s
    store_s = token_s * figures.distinct_tokens + figures.round_trip_s
    return PrefillPlan(
        mode="disaggregated",
        reason="",
        prefill_s=figures.apart_token_s * figures.distinct_tokens + store_s + transfer_s,
        transfer_s=transfer_s,
        num_tokens=figures.distinct_tokens,
    )


def _seconds(figures: PrefillFigures, plan: PrefillPlan) -> float:
    return plan.prefill_s + figures.decode_s


def _cost(figures: PrefillFigures, plan: PrefillPlan, token_s: float) -> float:
    """Unit-seconds: actors are held while they compute or fetch, and the replica apart while it computes and stores."""
    tokens, num_actors = sum(figures.actor_tokens), len(figures.actor_tokens)
    decode = figures.units_per_actor * figures.decode_s * num_actors
    if not plan.is_apart:
        return decode + figures.units_per_actor * figures.prefill_token_s * tokens
    fetch = figures.units_per_actor * (token_s * tokens + figures.round_trip_s * num_actors)
    return decode + fetch + figures.apart_units * plan.apart_s


def _log_ratio(first: float, second: float) -> float:
    """How much larger the first is; 0 where either is nothing."""
    return math.log(first / second) if first > 0 and second > 0 else 0.0


def _because(plan: PrefillPlan, reason: str) -> PrefillPlan:
    return replace(plan, reason=reason)
