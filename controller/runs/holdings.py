"""What the platform holds now, and what it has held since a moment: replicas with their state and cost. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.platforms.base import ReplicaLife
from controller.runs.ledger import Price, StageCost, account


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    PENDING = "pending"
    """There is no place for it yet, and it says why."""
    STARTING = "starting"
    """It has its place; its process is being made, or is not ready yet."""
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One replica and its part of the cost."""

    life: ReplicaLife
    state: ReplicaState
    held_s: float
    """Seconds for which it has held its resources, within the window."""
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """A window of time: the replicas that the platform remembers of it, and the cost of each function."""

    since: float
    """Unix seconds; the window's start."""
    now: float
    """Unix seconds of the platform's clock; the window's end."""
    price: Price
    replicas: tuple[Holding, ...]
    costs: Mapping[str, StageCost]
    """By function. What its calls were busy with is not known here: only held time, resources and money."""


def state_of(life: ReplicaLife) -> ReplicaState:
    """The phase that a life has reached."""
    if life.ended_at is not None:
        return ReplicaState.ENDED
    if life.draining_at is not None:
        return ReplicaState.DRAINING
    if life.ready_at is not None:
        return ReplicaState.READY
    return ReplicaState.PENDING if life.started_at is None and life.reason else ReplicaState.STARTING


def holdings(lives: Iterable[ReplicaLife], *, since: float, now: float, price: Price) -> Holdings:
    """Count what these lives have cost between two Unix times."""
    lives = tuple(lives)
    return Holdings(
        since=since,
        now=now,
        price=price,
        replicas=tuple(_holding(life, since, now, price) for life in lives),
        costs=account(lives, (), start=since, end=now, price=price),
    )


def _holding(life: ReplicaLife, since: float, now: float, price: Price) -> Holding:
    cost = account([life], (), start=since, end=now, price=price).get(life.function, StageCost())
    return Holding(
        life=life,
        state=state_of(life),
        held_s=cost.cold_s + cost.idle_s + cost.draining_s,
        usd=cost.usd,
    )
