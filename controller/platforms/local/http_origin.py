"""Kept-alive connections to one HTTP server: a replica, or the proxy itself."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import h11

from controller.platforms.local.http_stream import HttpStream

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
        self._idle: deque[tuple[float, HttpStream]] = deque()
        """With the time since when, the longest first."""

    async def connect(self) -> HttpStream:
        """A connection at rest. Raises ``OSError`` where nobody listens."""
        loop = asyncio.get_running_loop()
        self._close_idle(loop.time() - _MAX_IDLE_S)
        while self._idle:
            _, stream = self._idle.pop()
            if stream.is_open and stream.is_silent:
                return stream
            stream.abort()
        _, stream = await loop.create_connection(lambda: HttpStream(h11.CLIENT), self._host, self._port)
        return stream

    def give_back(self, stream: HttpStream) -> None:
        """Keep a connection whose message is complete; cut any other, which tells the other side to stop."""
        now = asyncio.get_running_loop().time()
        self._close_idle(now - _MAX_IDLE_S)
        if stream.next_message():
            self._idle.append((now, stream))
        else:
            stream.abort()

    async def fetch(self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"") -> HttpAnswer:
        """One exchange with whole bodies. ``headers`` has the host.

        Raises ``OSError`` where nobody listens, ``BrokenStream`` where the answer is not complete and
        ``h11.LocalProtocolError`` where a header or the target has a line break or the like in it.
        """
        fields = {**headers, **({"content-length": str(len(body))} if body else {})}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        request = h11.Request(method=method, target=target, headers=encoded)
        stream = await self.connect()
        try:
            stream.send(request, h11.Data(data=body), h11.EndOfMessage())
            response = await stream.receive_response()
            content = await stream.receive_rest()
        finally:
            self.give_back(stream)
        names = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        return HttpAnswer(status=response.status_code, headers=names, body=content)

    def close(self) -> None:
        """Close the connections at rest."""
        self._close_idle(float("inf"))

    def _close_idle(self, not_since: float) -> None:
        while self._idle and self._idle[0][0] <= not_since:
            _, stream = self._idle.popleft()
            stream.close()
