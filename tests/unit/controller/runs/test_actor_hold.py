"""Replicas given back one by one: the right ones, never too many, and none while a call waits for one."""

from collections.abc import Sequence
from typing import Any

import pytest

from controller.runs.actor_hold import ActorHold

UNTIL = 100.0


class Platform:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.time = 10.0
        self.asked: list[tuple[str, Any]] = []

    def now(self) -> float:
        return self.time

    async def retire(self, stage: str, instances: Sequence[str]) -> None:
        self.asked.append(("retire", list(instances)))

    async def scale(self, stage: str, num_replicas: int, *, hold_until: float) -> None:
        assert hold_until == UNTIL
        self.asked.append(("scale", num_replicas))


@pytest.fixture
def platform() -> Platform:
    return Platform()


def hold_of(platform: Platform, num_replicas: int = 3, **named: Any) -> ActorHold:
    return ActorHold(platform, num_replicas, until=UNTIL, **named)  # type: ignore[arg-type]  # a part of a platform


async def test_an_idle_replica_is_named_before_the_minimum_falls_to_the_busy_ones(platform: Platform) -> None:
    hold = hold_of(platform)
    await hold.give_back({0: "a", 1: "b", 2: "c"}, set())
    assert platform.asked == []
    await hold.give_back({0: "a", 2: "c"}, {"b"})
    assert platform.asked == [("retire", ["b"]), ("scale", 2)]
    await hold.give_back({0: "a", 2: "c"}, {"b"})
    assert len(platform.asked) == 2
    await hold.give_back({2: "c"}, {"a", "b"})
    assert platform.asked[2:] == [("retire", ["a"]), ("scale", 1)]


async def test_nothing_is_given_back_while_a_call_has_no_replica_yet(platform: Platform) -> None:
    hold = hold_of(platform)
    await hold.give_back({0: "a", 2: None}, {"b"})
    assert platform.asked == []
    await hold.give_back({0: "a", 2: "b"}, {"b"})
    assert platform.asked == [("scale", 2)], "the replica that answered works on another call"


async def test_idle_replicas_that_are_to_stay_stay(platform: Platform) -> None:
    hold = hold_of(platform, 4, num_kept=lambda num_busy: max(num_busy, 3))
    await hold.give_back({0: "a", 1: "b", 2: "c"}, {"d"})
    assert platform.asked == [("retire", ["d"]), ("scale", 3)]
    await hold.give_back({0: "a"}, {"b", "c", "d"})
    assert len(platform.asked) == 2


async def test_never_fewer_than_are_busy(platform: Platform) -> None:
    hold = hold_of(platform, 4, num_kept=lambda num_busy: 0)
    await hold.give_back({0: "a", 1: "b", 2: "c"}, {"d"})
    assert platform.asked[-1] == ("scale", 3)


async def test_after_the_holds_end_idle_replicas_are_named_only(platform: Platform) -> None:
    hold = hold_of(platform)
    platform.time = UNTIL + 1
    await hold.give_back({0: "a"}, {"b", "c"})
    assert platform.asked == [("retire", ["b", "c"])]
