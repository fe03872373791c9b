"""The connection to Redis, and the only module that imports the client library.

Everything above it speaks in commands and scripts; a lost connection is retried for a while, since Redis may restart in
the middle of a step, and then becomes ``StoreUnavailable``.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, cast

import redis.asyncio as aredis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from shared.contracts.errors import StoreRefused, StoreUnavailable

MAX_CONNECTIONS = 64
"""Enough for a replica's or the controller's concurrent calls; more would wait, not fail."""

Argument = str | bytes | int | float


class RedisConnection:
    """A bounded, blocking connection pool with named Lua scripts."""

    def __init__(self, url: str, *, password: str | None = None, retry_for_s: float = 15.0) -> None:
        """``url`` is ``redis://host:port/db``. ``retry_for_s`` bounds how long a lost server is waited for."""
        num_retries = max(1, round(retry_for_s / 0.5))
        self._pool = aredis.BlockingConnectionPool.from_url(
            url,
            password=password,
            max_connections=MAX_CONNECTIONS,
            timeout=30,
            socket_connect_timeout=5,
            socket_timeout=30,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), num_retries),
            retry_on_error=[ConnectionError, TimeoutError, BusyLoadingError],
        )
        self.client = aredis.Redis(connection_pool=self._pool)
        self._hashes: dict[str, str] = {}

    async def script(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run ``scripts/{name}.lua`` in one atomic step."""
        async with redis_errors():
            if name not in self._hashes:
                self._hashes[name] = await self._load(name)
            try:
                return await self._run(name, keys, arguments)
            except NoScriptError:
                # A restarted server has forgotten its scripts.
                self._hashes[name] = await self._load(name)
                return await self._run(name, keys, arguments)

    async def _load(self, name: str) -> str:
        source = files("shared.store").joinpath(f"scripts/{name}.lua").read_text()
        return str(await self.client.script_load(source))

    async def _run(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        reply = self.client.evalsha(self._hashes[name], len(keys), *keys, *cast(Sequence[str], arguments))
        return await cast(Awaitable[Any], reply)

    async def command(self, *arguments: Argument) -> Any:
        """Run one Redis command."""
        async with redis_errors():
            return await self.client.execute_command(*arguments)

    async def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run independent commands in one round trip."""
        async with redis_errors(), self.client.pipeline(transaction=False) as pipe:
            for arguments in commands:
                pipe.execute_command(*arguments)
            return list(await pipe.execute())

    async def keys(self, prefix: str) -> list[str]:
        """All keys that begin with the prefix (scans; for rare use)."""
        escaped = "".join(f"\\{char}" if char in "\\*?[]" else char for char in prefix)
        async with redis_errors():
            return [text(key) async for key in self.client.scan_iter(match=f"{escaped}*", count=1000)]

    async def close(self) -> None:
        """Close all connections."""
        await self.client.aclose()
        await self._pool.disconnect()


@asynccontextmanager
async def redis_errors() -> AsyncIterator[None]:
    """Turn the client library's errors into ours."""
    try:
        yield
    except OutOfMemoryError as error:
        raise StoreRefused("Redis is out of memory: raise maxmemory or lower the batch size") from error
    except ResponseError as error:
        if str(error).startswith("MISCONF"):
            raise StoreRefused(f"Redis cannot write to its disk: {error}") from error
        raise
    except (ConnectionError, TimeoutError) as error:
        raise StoreUnavailable(
            "Redis did not answer: check that it runs and that REDIS_URL is right"
        ) from error
    except RedisError as error:
        raise StoreUnavailable(f"Redis failed: {error}") from error


def text(value: Any) -> str:
    """A Redis string as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
