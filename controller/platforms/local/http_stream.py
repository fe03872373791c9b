"""HTTP/1.1 messages on a socket, for both sides of the proxy. Bodies are never gathered: each piece passes on."""

import asyncio
from collections.abc import AsyncIterator

import h11

READ_BYTES = 65536
MAX_HEAD_BYTES = 61440
"""Envoy's default limit for a request's head."""


class HttpStream:
    """One connection in one role (``h11.SERVER`` or ``h11.CLIENT``), message after message."""

    def __init__(
        self,
        role: type[h11.CLIENT] | type[h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._reader = reader
        self._writer = writer

    async def receive(self) -> h11.Event:
        """The next piece of the message. Raises ``BrokenStream``."""
        while True:
            piece = self._next_piece()
            if piece is not None:
                return piece
            try:
                if self.http.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                received = await self._reader.read(READ_BYTES)
            except ConnectionError as error:
                raise BrokenStream(self, f"connection lost: {error}") from error
            self.http.receive_data(received)

    def received(self) -> list[h11.Event]:
        """The pieces that have come in already, up to the message's end. Raises ``BrokenStream``."""
        pieces: list[h11.Event] = []
        while not (pieces and isinstance(pieces[-1], h11.EndOfMessage)):
            piece = self._next_piece()
            if piece is None:
                break
            pieces.append(piece)
        return pieces

    async def send(self, *pieces: h11.Event) -> None:
        """Write pieces of a message and wait while the other side reads too slowly. Raises ``BrokenStream``."""
        try:
            self._writer.write(b"".join(self.http.send(piece) or b"" for piece in pieces))
            await self._writer.drain()
        except (h11.LocalProtocolError, ConnectionError) as error:
            raise BrokenStream(self, f"cannot send: {error}") from error

    async def body(self) -> AsyncIterator[bytes]:
        """The body up to its end. Raises ``BrokenStream``."""
        while not isinstance(piece := await self.receive(), h11.EndOfMessage):
            if not isinstance(piece, h11.Data):
                raise BrokenStream(self, f"{type(piece).__name__} within a body")
            yield bytes(piece.data)

    @property
    def is_open(self) -> bool:
        """Whether neither side has ended the connection."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    def next_message(self) -> bool:
        """Make ready for another message; False where the connection cannot carry one."""
        done = self.http.our_state is h11.DONE and self.http.their_state is h11.DONE
        if done and self.is_open:
            self.http.start_next_cycle()
            return True
        return False

    def close(self) -> None:
        """Close after what has been written is sent."""
        self._writer.close()

    def abort(self) -> None:
        """Cut the connection now, so that the other side notices in mid-message."""
        self._writer.transport.abort()

    def _next_piece(self) -> h11.Event | None:
        """None where more must be read first."""
        try:
            piece = self.http.next_event()
        except h11.RemoteProtocolError as error:
            raise BrokenStream(self, str(error)) from error
        if piece is h11.NEED_DATA:
            return None
        if not isinstance(piece, h11.Event):
            raise BrokenStream(self, "another message begins before the answer to this one")
        return piece


class BrokenStream(Exception):
    """One side ended the connection or spoke no HTTP before the message was complete."""

    def __init__(self, stream: HttpStream, reason: str) -> None:
        super().__init__(reason)
        self.stream = stream


async def relay(head: h11.Event, source: HttpStream, sink: HttpStream) -> None:
    """Pass a message on: the head, then each piece of the body as soon as it comes. Raises ``BrokenStream``."""
    pieces = [head, *source.received()]
    while not isinstance(pieces[-1], h11.EndOfMessage):
        await sink.send(*pieces)
        pieces = [await source.receive(), *source.received()]
    await sink.send(*pieces)
