"""One connection that carries HTTP/1.1 messages, for both sides of the proxy. Bodies are never gathered.

h11 reads and writes the messages; its events are the pieces that pass from one connection to another.
"""

import asyncio
from collections import deque
from typing import cast

import h11

from controller.platforms.local.http_refusal import MAX_HEAD_BYTES, refusal

_MAX_UNREAD_BYTES = 131072
"""With more than this not yet taken the other side has to wait."""
_CLOSE_S = 30.0
"""Time that the other side has to take the last bytes."""


class HttpStream(asyncio.Protocol):
    """Messages of a connection in turn, each read piece by piece."""

    def __init__(self, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        """``role``: which of the two this side is."""
        self.peer = ""
        """The other side's address."""
        self.request: h11.Request | None = None
        """The request that is being received or answered."""
        self._http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._arrived: deque[bytes] = deque()
        """What h11 has not been given yet; nothing (``b""``) stands for the end of the connection."""
        self._num_arrived_bytes = 0
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
    def is_silent(self) -> bool:
        """Whether nothing has come in that nobody has taken."""
        return not self._arrived and not self._http.trailing_data[0]

    @property
    def has_answered(self) -> bool:
        """Whether the answer to the request has begun."""
        return self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    @property
    def has_unread_body(self) -> bool:
        """Whether the end of the message has not been taken."""
        return self._http.their_state is h11.SEND_BODY

    @property
    def waits_to_continue(self) -> bool:
        """Whether the body will only come when it is asked for, which it has not been."""
        return self._asks_to_continue and self.has_unread_body and self.is_silent

    @property
    def takes_trailers(self) -> bool:
        """Whether what is sent can end with trailers."""
        return self._http.their_http_version != b"1.0"

    def next_message(self) -> bool:
        """Make ready for another message; False where the connection cannot carry one."""
        states = {self._http.our_state, self._http.their_state}
        if states == {h11.DONE}:
            self._http.start_next_cycle()
        return self.is_open and states in ({h11.DONE}, {h11.IDLE})

    async def receive_request(self) -> h11.Request | None:
        """The head of the next request, None where the connection ended before. Raises ``BrokenStream``."""
        self.request = None
        head = await self._receive_piece()
        if not isinstance(head, h11.Request):
            return None
        self.request = head
        self._asks_to_continue = self._http.they_are_waiting_for_100_continue
        self._refuse(head)
        return head

    async def receive_response(self) -> h11.Response:
        """The head of the answer, past any informational ones. Raises ``BrokenStream``."""
        head = await self._receive_piece()
        while isinstance(head, h11.InformationalResponse):
            head = await self._receive_piece()
        if not isinstance(head, h11.Response):
            raise BrokenStream(self, "the connection ended before an answer")
        self._refuse(head)
        return head

    def received(self) -> list[h11.Event]:
        """The pieces of the message that have come in already, up to its end. Raises ``BrokenStream``."""
        pieces: list[h11.Event] = []
        while self.has_unread_body and (piece := self._next_piece()) is not None:
            pieces.append(piece)
        return pieces

    async def receive(self) -> list[h11.Event]:
        """The next pieces of a message that is not whole yet, at least one. Raises ``BrokenStream``."""
        while not (pieces := self.received()):
            if self._http.they_are_waiting_for_100_continue:
                self.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                self._asks_to_continue = False
            await self._more()
        self._asks_to_continue = False
        return pieces

    async def receive_rest(self) -> bytes:
        """What is left of the body, gathered. Raises ``BrokenStream``."""
        pieces: list[h11.Event] = []
        while self.has_unread_body:
            pieces += await self.receive()
        return b"".join([piece.data for piece in pieces if isinstance(piece, h11.Data)])

    def send(self, *pieces: h11.Event) -> None:
        """Write pieces of a message, all at once. Raises ``BrokenStream``."""
        parts = [part for piece in pieces for part in self._http.send_with_data_passthrough(piece) or ()]
        if self._transport.is_closing():
            raise BrokenStream(self, "the connection ended")
        # One join for all pieces: h11 would copy each, and a write for each is a system call.
        self._transport.write(b"".join(parts))

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

    def _refuse(self, head: h11.Request | h11.Response) -> None:
        refused = refusal(head)
        if refused is not None:
            status, reason = refused
            raise BrokenStream(self, reason, status=status)

    async def _receive_piece(self) -> h11.Event:
        while (piece := self._next_piece()) is None:
            await self._more()
        return piece

    def _next_piece(self) -> h11.Event | None:
        """None where more has to come first. h11 gets no more than it needs, as it keeps what it gets."""
        try:
            while (piece := self._http.next_event()) is h11.NEED_DATA and self._arrived:
                data = self._arrived.popleft()
                self._num_arrived_bytes -= len(data)
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            knows_the_end = self._ended and not self._arrived
            reason = "the connection ended within a message" if knows_the_end else str(error)
            raise BrokenStream(self, reason, status=error.error_status_hint) from error
        if self._paused and self._num_arrived_bytes <= _MAX_UNREAD_BYTES and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
        return piece if isinstance(piece, h11.Event) else None

    async def _more(self) -> None:
        """Wait until something comes in or the connection ends."""
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _end(self) -> None:
        self._ended = True
        self._arrive(b"")

    def _arrive(self, data: bytes) -> None:
        self._arrived.append(data)
        self._num_arrived_bytes += len(data)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``, as for the methods below."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = transport.get_extra_info("peername", ("",))[0]

    def data_received(self, data: bytes) -> None:
        self._arrive(data)
        if self._num_arrived_bytes > _MAX_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool | None:
        self._end()
        return None

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self.resume_writing()


class BrokenStream(Exception):
    """One side ended the connection or spoke no HTTP before the message was complete."""

    def __init__(self, stream: HttpStream, reason: str, *, status: int = 400) -> None:
        super().__init__(reason)
        self.stream = stream
        self.status = status
        """What the side is to be told, if it can be told anything."""
