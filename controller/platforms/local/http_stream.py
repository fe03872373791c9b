"""One connection that carries HTTP/1.1 messages, for both sides of the proxy. Bodies are never gathered."""

import asyncio
from typing import cast

from controller.platforms.local.http_body import (
    MAX_HEAD_BYTES,
    Body,
    End,
    Piece,
    SizedBody,
    body_of_request,
    body_of_response,
)
from controller.platforms.local.http_message import (
    HEAD_END,
    MessageRefused,
    RequestHead,
    ResponseHead,
    keeps_alive,
    listed,
    parse_request,
    parse_response,
    refuse_garbage,
)

_MAX_UNREAD_BYTES = 131072
"""With more than this not yet taken the other side has to wait."""
_CLOSE_S = 30.0
"""Time that the other side has to take the last bytes."""


class HttpStream(asyncio.Protocol):
    """Messages of a connection in turn, each read piece by piece."""

    def __init__(self) -> None:
        self.peer = ""
        """The other side's address."""
        self.has_answered = False
        """Whether anything has been written since the last request came."""
        self._buffer = bytearray()
        self._body: Body | None = None
        self.keeps_alive = True
        """Whether the other side will send more messages."""
        self._sent_whole = True
        self._num_unanswered = 0
        """Messages sent minus messages received, whichever of the two are the answers."""
        self._asks_to_continue = False
        self._ended = False
        self._paused = False
        self._arrival: asyncio.Future[None] | None = None
        self._is_writable = True
        self._writable: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether neither side has ended the connection."""
        return not self._ended and not self._transport.is_closing()

    @property
    def is_at_rest(self) -> bool:
        """Whether both messages are complete and the connection can carry others."""
        complete = self._body is None and self._sent_whole and not self._num_unanswered
        return complete and self.keeps_alive and self.is_open

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come in that nobody has taken."""
        return not self._buffer

    async def receive_request(self) -> RequestHead | None:
        """The head of the next request, None where the connection ended before. Raises ``BrokenStream``."""
        head = await self._receive_head()
        if head is None:
            return None
        try:
            request = parse_request(head)
            self._body = body_of_request(request)
        except MessageRefused as refused:
            raise BrokenStream(self, str(refused), status=refused.status) from refused
        self.has_answered = False
        self.keeps_alive = keeps_alive(request)
        self._asks_to_continue = request.minor_version > 0 and b"100-continue" in listed(request.headers, b"expect")
        return request

    async def receive_response(self, method: bytes) -> ResponseHead:
        """The head of the answer to a request, past any informational ones. Raises ``BrokenStream``."""
        while True:
            head = await self._receive_head()
            if head is None:
                raise BrokenStream(self, "the connection ended before an answer")
            try:
                response = parse_response(head)
                if response.status == 101:
                    raise MessageRefused("it switched to a protocol that nobody asked for")
                if response.status >= 200:
                    self._body = body_of_response(response, method)
                    self.keeps_alive = keeps_alive(response)
                    return response
            except MessageRefused as refused:
                raise BrokenStream(self, str(refused)) from refused

    @property
    def body_has_known_size(self) -> bool:
        """Whether the head said how many bytes follow; asked before the body is read."""
        return isinstance(self._body, SizedBody)

    def received(self) -> list[Piece]:
        """The pieces of the message that have come in already, up to its end. Raises ``BrokenStream``."""
        pieces: list[Piece] = []
        try:
            while self._body is not None and (piece := self._body.take(self._buffer)) is not None:
                pieces.append(piece)
                if isinstance(piece, End):
                    self._end_of_message()
        except MessageRefused as refused:
            raise BrokenStream(self, str(refused), status=refused.status) from refused
        self._resume()
        return pieces

    async def receive(self) -> list[Piece]:
        """The next pieces of the message, at least one, up to its end. Raises ``BrokenStream``."""
        while not (pieces := self.received()):
            if self._ended:
                if self._body is None or not self._body.ends_with_connection:
                    raise BrokenStream(self, "the connection ended within a message")
                self._end_of_message()
                return [End()]
            if self._asks_to_continue and not self.has_answered:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._asks_to_continue = False
            await self._more()
        self._asks_to_continue = False
        return pieces

    async def receive_rest(self) -> bytes:
        """What is left of the body, gathered. Raises ``BrokenStream``."""
        pieces: list[Piece] = []
        while self._body is not None:
            pieces += await self.receive()
        return b"".join([piece for piece in pieces if isinstance(piece, bytes)])

    @property
    def has_unread_body(self) -> bool:
        """Whether the end of the message has not been taken."""
        return self._body is not None

    @property
    def waits_to_continue(self) -> bool:
        """Whether the body will only come when it is asked for, which it has not been."""
        return self._asks_to_continue and self._body is not None and self.is_silent

    def write(self, data: bytes, *, last: bool) -> None:
        """Send bytes of a message, ``last`` with its end. Raises ``BrokenStream``."""
        if self._transport.is_closing():
            raise BrokenStream(self, "the connection ended")
        self.has_answered = True
        self._sent_whole = last
        self._num_unanswered += last
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the other side reads too slowly. Raises ``BrokenStream``."""
        if not self._is_writable:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable
        if self._transport.is_closing():
            raise BrokenStream(self, "the connection ended")

    def close(self) -> None:
        """Close after what has been written is sent."""
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_CLOSE_S, self._transport.abort)
        self._transport.close()

    def abort(self) -> None:
        """Cut the connection now, so that the other side notices in mid-message."""
        self._transport.abort()

    async def _receive_head(self) -> bytes | None:
        """Bytes up to the empty line; None where the connection ended before the first."""
        buffer, num_searched = self._buffer, 0
        while True:
            while buffer.startswith(b"\r\n"):
                del buffer[:2]
                num_searched = 0
            end = buffer.find(HEAD_END, max(0, num_searched - 3))
            if 0 <= end <= MAX_HEAD_BYTES:
                head = bytes(buffer[: end + len(HEAD_END)])
                del buffer[: len(head)]
                self._resume()
                return head
            if len(buffer) > MAX_HEAD_BYTES:
                raise BrokenStream(self, f"the head is longer than {MAX_HEAD_BYTES} bytes", status=431)
            try:
                refuse_garbage(bytes(buffer[max(0, num_searched - 1) :]))
            except MessageRefused as refused:
                raise BrokenStream(self, str(refused)) from refused
            if self._ended:
                if buffer:
                    raise BrokenStream(self, "the connection ended within a head")
                return None
            num_searched = len(buffer)
            await self._more()

    def _end_of_message(self) -> None:
        self._body = None
        self._num_unanswered -= 1

    async def _more(self) -> None:
        """Wait until something comes in or the connection ends."""
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _resume(self) -> None:
        if self._paused and len(self._buffer) <= _MAX_UNREAD_BYTES and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``, as for the methods below."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = transport.get_extra_info("peername", ("",))[0]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _MAX_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool | None:
        self._ended = True
        self._wake()
        return None

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._wake()
        self.resume_writing()


class BrokenStream(Exception):
    """One side ended the connection or spoke no HTTP before the message was complete."""

    def __init__(self, stream: HttpStream, reason: str, *, status: int = 400) -> None:
        super().__init__(reason)
        self.stream = stream
        self.status = status
        """What the side is to be told, if it can be told anything."""
