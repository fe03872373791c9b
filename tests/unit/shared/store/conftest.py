"""The store in each of its adapters, so that every rule of the ports is tested on both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from controller.platforms.local.redis_server import RedisServer
from shared.store.base import RunRecord, Store
from shared.store.memory import memory_store
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection

LONG_S = 60.0
"""A claim that does not end during a test."""
SHORT_S = 0.001
"""A claim that has ended after ``World.let_expire``."""


@dataclass(frozen=True)
class World:
    """A store and its time."""

    store: Store
    let_expire: Callable[[], Awaitable[None]]

    async def run(self, id: str = "run-1", *, owner: str = "controller", num_owners: int = 0) -> int:
        """Have a run, and have it owned so many times in a row; returns its fence."""
        if await self.store.runs.get(id) is None:
            await self.store.runs.create(run_record(id), idempotency_key=None, digest="d")
        fence = 0
        for _ in range(num_owners):
            owned = await self.store.runs.acquire(id, owner=owner, ttl_s=LONG_S)
            assert owned is not None
            fence = owned.fence
        return fence


def run_record(id: str, *, created_at: float = 1.0) -> RunRecord:
    return RunRecord(
        id=id,
        state="queued",
        created_at=created_at,
        updated_at=created_at,
        config={"lr": 0.1, "tags": ["a"]},
        info={"step": 0},
    )


@pytest_asyncio.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest, redis: RedisConnection) -> World:
    if request.param == "redis":
        return World(redis_store(redis), lambda: asyncio.sleep(0.02))
    now_s = [1_700_000_000.0]

    async def let_expire() -> None:
        now_s[0] += 1.0

    return World(memory_store(lambda: now_s[0]), let_expire)


class LosingProxy:
    """A TCP proxy before Redis that can lose a reply: the command has run, the client sees a broken connection."""

    def __init__(self, port: int) -> None:
        self._target_port = port
        self._lose_in = 0
        self.num_lost = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def lose_reply(self, number: int = 1) -> None:
        """Lose the reply so many replies from now; 1 is the next."""
        self._lose_in = number

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self._target_port)
        forward = asyncio.create_task(self._forward(from_client, to_redis))
        self._tasks.add(forward)
        try:
            while data := await from_redis.read(65536):
                if self._lose_in:
                    self._lose_in -= 1
                    if self._lose_in == 0:
                        self.num_lost += 1
                        break
                to_client.write(data)
                await to_client.drain()
        finally:
            forward.cancel()
            for writer in (to_client, to_redis):
                writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()


@dataclass(frozen=True)
class Lossy:
    """A store whose next reply can be lost."""

    store: Store
    proxy: LosingProxy


@pytest_asyncio.fixture
async def lossy(redis: RedisConnection, redis_server: RedisServer) -> AsyncIterator[Lossy]:
    proxy = LosingProxy(int(redis_server.url.rsplit(":", 1)[1].partition("/")[0]))
    port = await proxy.start()
    connection = RedisConnection(f"redis://127.0.0.1:{port}/0", password=redis_server.password, retry_for_s=5.0)
    yield Lossy(redis_store(connection), proxy)
    await connection.close()
    await proxy.stop()
