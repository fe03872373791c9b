"""A batch to roll out, on the store's adapters."""

import asyncio

import pytest

from shared.store.memory import memory_store
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.unit.functions.rollout.batch_world import BatchWorld


def in_memory() -> BatchWorld:
    now_s = [1_700_000_000.0]

    async def let_expire() -> None:
        now_s[0] += 1.0

    return BatchWorld(memory_store(lambda: now_s[0]), let_expire)


@pytest.fixture(params=["memory", "redis"])
def world(request: pytest.FixtureRequest, redis: RedisConnection) -> BatchWorld:
    """The batch on each adapter: for what depends on the store."""
    if request.param == "memory":
        return in_memory()
    return BatchWorld(redis_store(redis), lambda: asyncio.sleep(0.02))


@pytest.fixture
def memory_world() -> BatchWorld:
    """The batch in memory: for what depends on the worker alone."""
    return in_memory()
