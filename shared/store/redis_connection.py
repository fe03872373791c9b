"""The connection to Redis, and the only module that imports the client library.

Everything above it speaks in commands and scripts; a lost connection is retried for a while, since Redis may restart in
the middle of a step, and then becomes ``StoreUnavailable``. A command whose reply was lost is sent again, so each must
bear being run twice.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from redis import exceptions as failures
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared.contracts.errors import StoreRefused, StoreUnavailable

MAX_CONNECTIONS = 64
"""Enough for a replica's or the controller's concurrent calls; more would wait, not fail."""
COMMAND_TIMEOUT_S = 15.0
"""A server that takes longer for one command counts as lost."""
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5

Argument = str | bytes | memoryview | int | float
ResultT = TypeVar("ResultT")


class RedisConnection:
    """Bounded, blocking connection pools with named Lua scripts."""

    def __init__(self, url: str, *, password: str | None = None, retry_for_s: float = 15.0) -> None:
        """``url`` is ``redis://host:port/db``. ``retry_for_s`` bounds how long a lost server is waited for.

        Raises ``ValueError`` for another URL.
        """
        self._retry_for_s = retry_for_s
        self._client = _client(url, password)
        self._waiting_client = _client(url, password)
        """For commands that wait on the server, so that many waiting readers never hold up work."""

    async def script(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run ``scripts/{name}.lua`` in one atomic step."""
        source, sha = _script(name)

        async def run() -> Any:
            try:
                return await self._client.evalsha(sha, len(keys), *keys, *arguments)
            except failures.NoScriptError:
                # New to the server, or it was restarted and has forgotten its scripts. EVAL keeps it.
                return await self._client.eval(source, len(keys), *keys, *arguments)

        return await self._retrying(run)

    async def command(self, *arguments: Argument) -> Any:
        """Run one Redis command."""
        return await self._retrying(lambda: self._client.execute_command(*arguments))

    async def waiting_command(self, *arguments: Argument) -> Any:
        """Run one Redis command that may block on the server, for a few seconds at most."""
        return await self._retrying(lambda: self._waiting_client.execute_command(*arguments))

    async def pipeline(self, commands: Sequence[Sequence[Argument]], *, atomic: bool = False) -> list[Any]:
        """Run commands in one round trip; with ``atomic`` all at once, seen by others together."""

        async def run() -> list[Any]:
            async with self._client.pipeline(transaction=atomic) as pipe:
                for arguments in commands:
                    pipe.execute_command(*arguments)
                return list(await pipe.execute())

        return await self._retrying(run)

    async def keys(self, prefix: str) -> list[str]:
        """All keys that begin with the prefix (scans; for rare use)."""
        escaped = "".join(f"\\{char}" if char in "\\*?[]" else char for char in prefix)

        async def run() -> list[str]:
            return sorted({text(key) async for key in self._client.scan_iter(match=f"{escaped}*", count=1000)})

        return await self._retrying(run)

    async def close(self) -> None:
        """Close all connections."""
        for client in (self._client, self._waiting_client):
            await client.aclose()
            await client.connection_pool.disconnect()

    async def _retrying(self, operation: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Run the operation, again while the server is lost, and turn the client library's errors into ours."""
        give_up_at = asyncio.get_running_loop().time() + self._retry_for_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await operation()
            except (failures.AuthenticationError, failures.AuthorizationError, failures.NoPermissionError) as error:
                raise StoreUnavailable(
                    "Redis refused the login: check that REDIS_PASSWORD (or the one in REDIS_URL) is the server's"
                ) from error
            except (failures.ConnectionError, failures.TimeoutError) as error:
                if asyncio.get_running_loop().time() + pause_s > give_up_at:
                    raise StoreUnavailable(
                        "Redis did not answer: check that it runs and that REDIS_URL is right"
                    ) from error
            except failures.ResponseError as error:
                if _is_full(error):
                    raise StoreRefused("Redis is out of memory: raise maxmemory or lower the batch size") from error
                if "MISCONF" in str(error):
                    raise StoreRefused("Redis cannot write to its disk: free some space in its data folder") from error
                raise
            except failures.RedisError as error:
                raise StoreUnavailable(f"Redis failed: {error}") from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def text(value: Any) -> str:
    """A Redis string as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


@cache
def _script(name: str) -> tuple[str, str]:
    """A script's source and the digest that Redis knows it by."""
    source = files("shared.store").joinpath(f"scripts/{name}.lua").read_text()
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def _client(url: str, password: str | None) -> Any:
    """The library's client. Its commands are annotated for both its worlds at once, so their types help nobody."""
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            password=password,
            max_connections=MAX_CONNECTIONS,
            timeout=COMMAND_TIMEOUT_S,
            socket_connect_timeout=5,
            socket_timeout=COMMAND_TIMEOUT_S,
            protocol=2,
            # Lost connections are retried above, by time: the library counts attempts.
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:
        # The library's message may repeat a part of the URL, and the URL may hold the password.
        raise ValueError(
            "REDIS_URL is not of the form redis://host:port/db (special characters of a password are %-encoded)"
        ) from None
    return Redis(connection_pool=pool)


def _is_full(error: failures.ResponseError) -> bool:
    """Whether memory is short. A script's error carries its cause in the middle."""
    return isinstance(error, failures.OutOfMemoryError) or "OOM command not allowed" in str(error)
