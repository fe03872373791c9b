"""A replica's own queue."""

import asyncio

import pytest

from controller.platforms.local.activator import QueueFull, TurnedAway
from controller.platforms.local.replica_queue import ReplicaLost, ReplicaQueue


async def waiting(queue: ReplicaQueue) -> "asyncio.Task[None]":
    """A request that has begun to wait."""
    task = asyncio.create_task(queue.enter())
    await asyncio.sleep(0)
    return task


async def test_as_many_at_once_as_the_limit_and_the_rest_in_turn() -> None:
    queue = ReplicaQueue(2)
    await queue.enter()
    await queue.enter()
    first, second = await waiting(queue), await waiting(queue)
    assert (queue.num_running, queue.num_waiting, queue.num_requests) == (2, 2, 4)
    queue.leave()
    await first
    assert not second.done()
    queue.leave()
    await second
    queue.leave()
    queue.leave()
    assert queue.num_requests == 0


async def test_ten_times_the_limit_may_wait() -> None:
    queue = ReplicaQueue(1)
    await queue.enter()
    tasks = [await waiting(queue) for _ in range(10)]
    with pytest.raises(QueueFull):
        await queue.enter()
    queue.turn_away()
    for task in tasks:
        with pytest.raises(TurnedAway):
            await task
    assert queue.num_requests == 1


async def test_without_a_limit_nobody_waits() -> None:
    queue = ReplicaQueue(0)
    for _ in range(100):
        await queue.enter()
    assert (queue.num_running, queue.num_waiting) == (100, 0)


async def test_who_gives_up_leaves_the_queue() -> None:
    queue = ReplicaQueue(1)
    await queue.enter()
    first, second = await waiting(queue), await waiting(queue)
    first.cancel()
    await asyncio.wait([first])
    queue.leave()
    await second
    assert queue.num_requests == 1


async def test_a_turn_given_to_one_who_gives_up_goes_to_the_next() -> None:
    queue = ReplicaQueue(1)
    await queue.enter()
    first, second = await waiting(queue), await waiting(queue)
    queue.leave()
    first.cancel()
    await asyncio.wait([first])
    await second
    assert queue.num_requests == 1


async def test_whoever_waits_for_a_lost_replica_is_told() -> None:
    queue = ReplicaQueue(1)
    await queue.enter()
    first = await waiting(queue)
    queue.close()
    with pytest.raises(ReplicaLost):
        await first
    with pytest.raises(ReplicaLost):
        await queue.enter()
