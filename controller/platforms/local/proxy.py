"""The front door of all functions: HTTP/1.1 on one port, routed by host, passed on piece by piece.

It stands for Knative's ingress, activator and queue-proxy together: waits for a replica's slot, counts both timeouts
from the arrival, answers 404, 502, 503 and 504 in the function's place, and lets go of the slot and of the replica's
connection as soon as the caller is gone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import h11

from controller.platforms.local.activator import QueueFull, TurnedAway
from controller.platforms.local.http_origin import receive_response
from controller.platforms.local.http_stream import READ_BYTES, BrokenStream, HttpStream, relay

logger = logging.getLogger(__name__)

_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"expect"))
"""Headers about one connection, which another must not carry (RFC 9110, 7.6.1). h11 keeps the framing."""

_DISCARD_BYTES = 262144
_DISCARD_S = 0.5


class Routed(Protocol):
    """What a request can be routed to."""

    @property
    def timeout_s(self) -> float:
        """Longest time of a whole request."""
        ...

    @property
    def response_start_timeout_s(self) -> float:
        """Longest time to the first byte of the answer; 0: no limit of its own."""
        ...

    def admit(self) -> AbstractAsyncContextManager[HttpStream]:
        """Wait for a slot on a replica and hold it, with a connection. Raises ``QueueFull`` or ``TurnedAway``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a request goes, and the target it has there."""

    function: Routed
    target: bytes


class PortInUse(Exception):
    """The proxy's address cannot be listened on."""


class Proxy:
    """Accepts connections and serves the requests of each in turn."""

    def __init__(self, route: Callable[[str, bytes], Route | None]) -> None:
        """``route``: host header and target to a function, None where there is none."""
        self._route = route
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes any free one. Returns the port. Raises ``PortInUse``."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _ClientProtocol(self._begin), host, port)
        except OSError as error:
            raise PortInUse(
                f"cannot listen on {host}:{port} ({error.strerror}); choose another port or end what listens there"
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._serve(HttpStream(h11.SERVER, reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        return task

    async def _serve(self, client: HttpStream) -> None:
        """All requests of one connection. It is cancelled when the caller goes."""
        try:
            while isinstance(request := await client.receive(), h11.Request):
                await self._answer(client, request)
                if not client.next_message():
                    break
        except BrokenStream as error:
            await _answer_broken(client, error)
        except asyncio.CancelledError:
            client.abort()
            raise
        except Exception:
            logger.exception("a connection to the proxy failed")
            client.abort()
        finally:
            client.close()

    async def _answer(self, client: HttpStream, request: h11.Request) -> None:
        host = next((value for name, value in request.headers if name == b"host"), b"").decode("latin-1")
        route = self._route(host, request.target)
        if route is None:
            await _answer_instead(client, request, 404, f"no function for host {host!r} and this path")
            return
        function = route.function
        arrival = asyncio.get_running_loop().time()
        start_timeout_s = min(function.timeout_s, function.response_start_timeout_s or function.timeout_s)
        try:
            async with asyncio.timeout_at(arrival + start_timeout_s) as limit, function.admit() as replica:
                await _pass_on(client, request, route.target, replica, limit, arrival + function.timeout_s)
        except QueueFull:
            await _answer_instead(client, request, 503, "pending request queue full")
        except TurnedAway:
            await _answer_instead(client, request, 503, "the function was released while the request waited")
        except TimeoutError:
            await _answer_instead(client, request, 504, "activator request timeout")
        except BrokenStream as error:
            if error.stream is client:
                raise
            await _answer_instead(client, request, 502, f"the replica failed: {error}")


async def _pass_on(
    client: HttpStream,
    request: h11.Request,
    target: bytes,
    replica: HttpStream,
    limit: asyncio.Timeout,
    end: float,
) -> None:
    """The request to the replica and its answer back. ``limit`` moves to ``end`` when the answer begins.

    Raises ``BrokenStream`` with the side that broke off.
    """
    head = h11.Request(method=request.method, target=target, headers=_end_to_end(request.headers))
    try:
        await relay(head, client, replica)
    except BrokenStream as error:
        if error.stream is client:
            raise
        # The replica may have answered early and stopped reading: its answer, or its lack, decides.
    response = await receive_response(replica)
    limit.reschedule(end)
    answer = h11.Response(
        status_code=response.status_code, headers=_end_to_end(response.headers), reason=response.reason
    )
    await relay(answer, replica, client)


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in _HOP_BY_HOP]


async def _answer_instead(client: HttpStream, request: h11.Request, status: int, text: str) -> None:
    """Answer in the function's place; where an answer has begun already, only cutting it shows that it is not whole."""
    if client.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        client.abort()
        return
    body = f"{text}\n".encode()
    headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
    if not await _discard_body(client):
        headers.append(("connection", "close"))
    pieces = [] if request.method == b"HEAD" else [h11.Data(data=body)]
    await client.send(h11.Response(status_code=status, headers=headers), *pieces, h11.EndOfMessage())


async def _answer_broken(client: HttpStream, error: BrokenStream) -> None:
    """A request that is no HTTP gets 400; an answer that broke off in the middle is cut here too."""
    if error.stream is client and client.is_open and client.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
        body = f"{error}\n".encode()
        headers = [("content-length", str(len(body))), ("connection", "close")]
        with contextlib.suppress(BrokenStream):
            await client.send(h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    else:
        client.abort()


async def _discard_body(client: HttpStream) -> bool:
    """Read what is left of a request, within reason: closing on unread bytes would take the answer along."""
    if client.http.they_are_waiting_for_100_continue:
        return False
    num_bytes = 0
    try:
        async with asyncio.timeout(_DISCARD_S):
            while client.http.their_state is h11.SEND_BODY and num_bytes < _DISCARD_BYTES:
                piece = await client.receive()
                num_bytes += len(piece.data) if isinstance(piece, h11.Data) else 0
    except TimeoutError:
        return False
    return client.http.their_state is h11.DONE


class _ClientProtocol(asyncio.StreamReaderProtocol):
    """A stream whose task ends with the connection, also while it waits for something else.

    A caller that closes its sending side counts as gone, as with Go's server.
    """

    def __init__(self, begin: Callable[[asyncio.StreamReader, asyncio.StreamWriter], asyncio.Task[None]]) -> None:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._serving = begin(reader, writer)

        super().__init__(asyncio.StreamReader(limit=READ_BYTES), connected)

    def eof_received(self) -> bool | None:
        self._serving.cancel()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._serving.cancel()
        super().connection_lost(exc)
