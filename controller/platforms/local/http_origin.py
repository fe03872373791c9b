"""Kept-alive connections to one HTTP server: a replica, or the proxy itself."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import h11

from controller.platforms.local.http_stream import READ_BYTES, BrokenStream, HttpStream

_MAX_IDLE_S = 1.0
"""A connection idle for longer is not used again: servers close theirs after some seconds (uvicorn: 5), and a
request sent at that moment would be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpOrigin:
    """The server at an address. Each message has its connection to itself."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[tuple[float, HttpStream]] = []

    async def connect(self) -> HttpStream:
        """A connection at rest. Raises ``OSError`` where nobody listens."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            idle_since, stream = self._idle.pop()
            if stream.is_open and now - idle_since < _MAX_IDLE_S:
                return stream
            stream.close()
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=READ_BYTES)
        return HttpStream(h11.CLIENT, reader, writer)

    def give_back(self, stream: HttpStream) -> None:
        """Keep a connection whose message is complete; cut any other, which tells the other side to stop."""
        if stream.next_message():
            self._idle.append((asyncio.get_running_loop().time(), stream))
        else:
            stream.abort()

    async def fetch(self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"") -> HttpAnswer:
        """One exchange with whole bodies. ``headers`` has the host.

        Raises ``OSError`` where nobody listens and ``BrokenStream`` where the answer is not complete.
        """
        framing = {"content-length": str(len(body))} if body else {}
        head = h11.Request(method=method, target=target, headers=list({**headers, **framing}.items()))
        stream = await self.connect()
        try:
            await stream.send(head, *([h11.Data(data=body)] if body else []), h11.EndOfMessage())
            response = await receive_response(stream)
            content = b"".join([piece async for piece in stream.body()])
        finally:
            self.give_back(stream)
        names = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        return HttpAnswer(status=response.status_code, headers=names, body=content)

    def close(self) -> None:
        """Close the connections at rest."""
        while self._idle:
            _, stream = self._idle.pop()
            stream.close()


async def receive_response(stream: HttpStream) -> h11.Response:
    """The head of the answer, past any informational ones. Raises ``BrokenStream``."""
    while not isinstance(event := await stream.receive(), h11.Response):
        if not isinstance(event, h11.InformationalResponse):
            raise BrokenStream(stream, "the connection ended before an answer")
    return event
