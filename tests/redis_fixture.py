"""A real Redis server for the tests that need one: one for the session, empty for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controller.platforms.local.redis_server import RedisServer
from shared.store.redis_connection import RedisConnection


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisServer]:
    """The session's server. Tests that stop or fill a server start their own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def own_redis_server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A server for one test, which may do with it as it likes."""
    server = RedisServer(tmp_path / "own-redis")
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisConnection]:
    """A connection to the session's server, which holds nothing yet."""
    connection = RedisConnection(redis_server.url, password=redis_server.password)
    await connection.command("FLUSHALL")
    yield connection
    await connection.close()
