"""Event logs, on every adapter."""

import asyncio

import pytest

from shared.contracts.errors import InvalidInput
from shared.store.opening import redis_store
from shared.store.redis_connection import MAX_CONNECTIONS, RedisConnection
from tests.unit.shared.store.conftest import World


async def append(world: World, *numbers: int, run: str = "run-1") -> None:
    for number in numbers:
        await world.store.events.append(run, "step", {"n": number})


async def numbers(world: World, after: str = "0", **options: float) -> list[int]:
    events = await world.store.events.read("run-1", after=after, **options)
    return [event.data["n"] for event in events]


async def test_events_come_in_order_with_what_they_carry(world: World) -> None:
    data = {"n": 1, "nested": {"list": [1, None, "ü"]}}
    await world.store.events.append("run-1", "state", data)
    await append(world, 2)
    first, second = await world.store.events.read("run-1")
    assert (first.kind, first.data) == ("state", data)
    assert (second.kind, second.data) == ("step", {"n": 2})
    assert await world.store.events.read("run-2") == []


async def test_reading_goes_on_after_an_id(world: World) -> None:
    await append(world, *range(10))
    events = await world.store.events.read("run-1")
    assert len({event.id for event in events}) == 10
    for index, event in enumerate(events):
        assert await numbers(world, event.id) == list(range(index + 1, 10))
    assert await numbers(world, events[2].id, limit=3) == [3, 4, 5]


async def test_reading_waits_for_the_first_event(world: World) -> None:
    await append(world, 1)
    [seen] = await world.store.events.read("run-1")
    reading = asyncio.create_task(world.store.events.read("run-1", after=seen.id, wait_s=30.0))
    await asyncio.sleep(0.02)
    assert not reading.done()
    await append(world, 7, run="run-2")
    await append(world, 2)
    assert [event.data["n"] for event in await reading] == [2]


async def test_reading_returns_at_once_what_is_there(world: World) -> None:
    await append(world, 1)
    assert await numbers(world, wait_s=30.0) == [1]


async def test_waiting_ends_without_an_event(world: World) -> None:
    assert await numbers(world, wait_s=0.03) == []


async def test_every_waiting_reader_gets_the_event(world: World) -> None:
    reading = [asyncio.create_task(world.store.events.read("run-1", wait_s=30.0)) for _ in range(10)]
    await asyncio.sleep(0.02)
    await append(world, 1)
    assert [len(await events) for events in reading] == [1] * 10


@pytest.mark.parametrize("id", ["", "x", "-", "1-", "1-2-3", "$", "+1", "1 ", "\uff11", "9" * 30])
async def test_an_id_that_no_log_gives_is_refused(world: World, id: str) -> None:
    with pytest.raises(InvalidInput, match="event id"):
        await world.store.events.read("run-1", after=id)


async def test_waiting_readers_do_not_hold_up_work(redis: RedisConnection) -> None:
    world = World(redis_store(redis), lambda: asyncio.sleep(0))
    reading = [asyncio.create_task(world.store.events.read("run-1", wait_s=30.0)) for _ in range(MAX_CONNECTIONS + 5)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        assert await redis.command("PING")
        await append(world, 1)
        assert all(len(events) == 1 for events in await asyncio.gather(*reading))
