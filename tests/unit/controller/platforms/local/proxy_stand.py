"""The proxy between real sockets, for tests: a caller that writes bytes, and a replica that answers them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.http_stream import HttpStream
from controller.platforms.local.proxy import Proxy, Route

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]
GET = b"GET /x?a=1 HTTP/1.1\r\nHost: rollout\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: rollout\r\n"


@dataclass
class FakeFunction:
    """A function with one replica, which does one request at a time."""

    origin: HttpOrigin
    timeout_s: float = 5.0
    response_start_timeout_s: float = 0.0
    idle_timeout_s: float = 0.0
    error: Exception | None = None
    slot: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    num_queued: int = 0
    num_in_flight: int = 0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[HttpStream]:
        if self.error is not None:
            raise self.error
        self.num_queued += 1
        try:
            await self.slot.acquire()
        finally:
            self.num_queued -= 1
        self.num_in_flight += 1
        stream = None
        try:
            stream = await self.origin.connect()
            yield stream
        finally:
            if stream is not None:
                self.origin.give_back(stream)
            self.num_in_flight -= 1
            self.slot.release()


@dataclass
class Stand:
    """A proxy before one function, and the heads of the requests that its replica has seen."""

    proxy: Proxy
    port: int
    function: FakeFunction
    heads: list[bytes]

    @asynccontextmanager
    async def connection(self, **options: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A caller's connection to the proxy."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def call(self, request: bytes) -> bytes:
        """Send bytes on a connection of their own and read until the proxy ends it."""
        async with self.connection() as (reader, writer):
            writer.write(request.replace(b"Host:", b"Connection: close\r\nHost:", 1))
            return await reader.read()

    async def is_well(self) -> bool:
        """Whether an ordinary request is still answered, and nothing else is in flight."""
        answered = (await self.call(GET)).startswith(b"HTTP/1.1 201")
        return answered and self.function.num_in_flight == 0 and self.function.num_queued == 0


@asynccontextmanager
async def stand(handler: Handler, **options: Any) -> AsyncIterator[Stand]:
    """A stand whose replica answers with the handler."""
    heads: list[bytes] = []
    tasks: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                await handler(reader, writer, head)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    replica = await asyncio.start_server(lambda r, w: tasks.append(asyncio.ensure_future(serve(r, w))), "127.0.0.1", 0)
    origin = HttpOrigin("127.0.0.1", replica.sockets[0].getsockname()[1])
    function = FakeFunction(origin, **options)
    proxy = Proxy(lambda host, target: Route(function=function, target=target) if host == "rollout" else None)
    port = await proxy.start("127.0.0.1", 0)
    try:
        yield Stand(proxy, port, function, heads)
    finally:
        await proxy.stop()
        origin.close()
        replica.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(answer: bytes) -> Handler:
    """A replica that answers every head with these bytes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(answer)

    return handler


HELLO = answering(b"HTTP/1.1 201 Made\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello")


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
    """A replica that never answers."""
    await reader.read()
