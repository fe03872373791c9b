"""Where the store of one machine's stack is: a Redis that is configured, or one of our own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from controller.platforms.local.redis_server import RedisServer
from controller.settings import ControllerSettings
from shared.store.redis_connection import RedisConnection

REDIS_PATIENCE_S = 3.0
"""How long a configured Redis is waited for at the start; later it may be away for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where the store is."""

    url: str
    password: str | None = field(repr=False)


@contextlib.asynccontextmanager
async def redis_address(settings: ControllerSettings) -> AsyncIterator[RedisAddress]:
    """The configured Redis, or one of our own for as long as the context is open.

    Raises ``StoreUnavailable`` where the configured one does not answer, ``ValueError`` for a URL that names none, and
    ``RedisServerError``, having cancelled what goes on in the context, where our own ends again and again.
    """
    if settings.redis_url is not None:
        redis = RedisConnection(settings.redis_url, password=settings.redis_password, retry_for_s=REDIS_PATIENCE_S)
        try:
            await redis.command("PING")
        finally:
            await redis.close()
        yield RedisAddress(url=settings.redis_url, password=settings.redis_password)
        return
    server = RedisServer(settings.state_dir / "redis")
    await server.start()
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(server.failed(), name="redis given up")
            yield RedisAddress(url=server.url, password=server.password)
            watching.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await server.stop()
