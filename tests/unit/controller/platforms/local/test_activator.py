"""Slots and queue."""

import asyncio
from random import Random

import pytest

from controller.platforms.local.activator import Activator, QueueFull, TurnedAway


def activator(limit: int = 1, queue: int = 100) -> Activator[str]:
    return Activator(container_concurrency=limit, queue_limit=queue, random=Random(0))


async def waiting(slots: Activator[str]) -> "asyncio.Task[str]":
    """A request that has begun to wait."""
    task = asyncio.create_task(slots.acquire())
    await asyncio.sleep(0)
    return task


async def test_requests_wait_at_zero_and_go_in_their_order() -> None:
    slots = activator()
    first, second = await waiting(slots), await waiting(slots)
    assert slots.num_queued == 2
    slots.add("a")
    assert await first == "a"
    assert not second.done()
    slots.release("a")
    assert await second == "a"
    assert slots.num_queued == 0


async def test_a_newcomer_does_not_overtake() -> None:
    slots = activator()
    slots.add("a")
    await slots.acquire()
    first = await waiting(slots)
    slots.release("a")
    newcomer = await waiting(slots)
    assert await first == "a"
    assert not newcomer.done()
    newcomer.cancel()


async def test_the_limit_of_each_replica() -> None:
    slots = activator(limit=2)
    slots.add("a")
    slots.add("b")
    assert [await slots.acquire() for _ in range(4)] == ["a", "a", "b", "b"], "first available for small limits"
    fifth = await waiting(slots)
    slots.release("b")
    assert await fifth == "b"


async def test_large_limits_take_turns() -> None:
    slots = activator(limit=4)
    for replica in "abc":
        slots.add(replica)
    assert [await slots.acquire() for _ in range(4)] == ["a", "b", "c", "a"]
    slots.remove("c")
    assert [await slots.acquire() for _ in range(2)] == ["b", "a"]


async def test_without_a_limit_nobody_waits() -> None:
    slots = activator(limit=0)
    slots.add("a")
    slots.add("b")
    assert sorted([await slots.acquire() for _ in range(4)]) == ["a", "a", "b", "b"]


async def test_a_leaving_replica_keeps_its_requests_and_gets_no_more() -> None:
    slots = activator(limit=2)
    slots.add("a")
    await slots.acquire()
    slots.remove("a")
    queued = await waiting(slots)
    assert not queued.done()
    slots.release("a")
    assert not queued.done()
    queued.cancel()


async def test_who_gives_up_leaves_the_queue() -> None:
    slots = activator()
    first, second = await waiting(slots), await waiting(slots)
    first.cancel()
    await asyncio.wait([first])
    assert slots.num_queued == 1
    slots.add("a")
    assert await second == "a"


async def test_a_slot_given_to_one_who_gives_up_goes_to_the_next() -> None:
    slots = activator()
    first, second = await waiting(slots), await waiting(slots)
    slots.add("a")
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert await second == "a"


async def test_cancelled_and_handed_out_in_one_turn_of_the_loop() -> None:
    slots = activator()
    first, second = await waiting(slots), await waiting(slots)
    first.cancel()
    slots.add("a")
    assert await second == "a"
    assert slots.num_queued == 0


async def test_a_full_queue_refuses() -> None:
    slots = activator(queue=1)
    first = await waiting(slots)
    with pytest.raises(QueueFull):
        await slots.acquire()
    first.cancel()


async def test_turning_away_ends_the_wait() -> None:
    slots = activator()
    first = await waiting(slots)
    slots.turn_away()
    with pytest.raises(TurnedAway):
        await first
    assert slots.num_queued == 0
