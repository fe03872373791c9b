"""Where a message's body ends, and its pieces, from bytes and to bytes. Pure (RFC 9112 6 and 7)."""

import re
from dataclasses import dataclass, field
from typing import Protocol

from controller.platforms.local.http_message import (
    HEAD_END,
    Headers,
    MessageRefused,
    RequestHead,
    ResponseHead,
    field_bytes,
    parse_fields,
    values_of,
)

MAX_HEAD_BYTES = 61440
"""Envoy's default limit for a request's head; here also for trailers."""
_MAX_CHUNK_LINE_BYTES = 4096
_NUM_BYTES = re.compile(rb"[0-9]{1,18}")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
FRAMING = frozenset((b"content-length", b"transfer-encoding"))
"""Headers that say where the body ends."""
_NO_TRAILERS = FRAMING | {b"host", b"connection", b"authorization", b"content-encoding", b"content-type"}
"""What a trailer must not change once the head has been read (RFC 9110, 6.5.1)."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a message."""

    trailers: Headers = field(default_factory=list)


Piece = bytes | End


class Body(Protocol):
    """A body that is still to come."""

    def take(self, buffer: bytearray) -> Piece | None:
        """Take the next piece out of what has come in; None where more has to come. Raises ``MessageRefused``."""
        ...

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the end of the message."""
        ...


class SizedBody:
    """A body of so many bytes, also of none."""

    ends_with_connection = False

    def __init__(self, num_bytes: int) -> None:
        self._num_left = num_bytes

    def take(self, buffer: bytearray) -> Piece | None:
        """See ``Body``."""
        if not self._num_left:
            return End()
        piece = _cut(buffer, self._num_left)
        self._num_left -= len(piece)
        return piece or None


class BodyUntilClose:
    """A body that lasts as long as the connection."""

    ends_with_connection = True

    def take(self, buffer: bytearray) -> Piece | None:
        """See ``Body``."""
        return _cut(buffer, len(buffer)) or None


class ChunkedBody:
    """A body in chunks, each after a line with its size."""

    ends_with_connection = False

    def __init__(self) -> None:
        self._num_left = 0
        self._line_end_is_due = False
        self._in_trailers = False

    def take(self, buffer: bytearray) -> Piece | None:
        """See ``Body``."""
        if self._line_end_is_due and not self._take_line_end(buffer):
            return None
        if not self._in_trailers and not self._num_left and not self._take_chunk_line(buffer):
            return None
        if self._in_trailers:
            return self._take_trailers(buffer)
        piece = _cut(buffer, self._num_left)
        self._num_left -= len(piece)
        self._line_end_is_due = not self._num_left
        return piece or None

    def _take_line_end(self, buffer: bytearray) -> bool:
        if not b"\r\n".startswith(buffer[:2]):
            raise MessageRefused("a chunk is longer than it said")
        if len(buffer) < 2:
            return False
        del buffer[:2]
        self._line_end_is_due = False
        return True

    def _take_chunk_line(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\r\n", 0, _MAX_CHUNK_LINE_BYTES)
        if end < 0:
            if len(buffer) >= _MAX_CHUNK_LINE_BYTES or b"\n" in buffer:
                raise MessageRefused("the line before a chunk is malformed")
            return False
        match = _CHUNK_LINE.fullmatch(_cut(buffer, end + 2)[:-2])
        if match is None:
            raise MessageRefused("the line before a chunk is malformed")
        self._num_left = int(match[1], 16)
        self._in_trailers = not self._num_left
        return True

    def _take_trailers(self, buffer: bytearray) -> End | None:
        if buffer.startswith(b"\r\n"):
            del buffer[:2]
            return End()
        end = buffer.find(HEAD_END, 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(buffer) >= MAX_HEAD_BYTES:
                raise MessageRefused("the trailers are too long", 431)
            return None
        lines = _cut(buffer, end + len(HEAD_END)).removesuffix(HEAD_END).split(b"\r\n")
        return End([trailer for trailer in parse_fields(lines) if trailer[0] not in _NO_TRAILERS])


def body_of_request(head: RequestHead) -> SizedBody | ChunkedBody:
    """What follows a request's head. Raises ``MessageRefused`` where that is not beyond doubt."""
    return _stated_body(head) or SizedBody(0)


def body_of_response(head: ResponseHead, method: bytes) -> Body:
    """What follows the head of the answer to a request. Raises ``MessageRefused``."""
    if method == b"HEAD" or head.status in (204, 304):
        return SizedBody(0)
    return _stated_body(head) or BodyUntilClose()


def encode(piece: Piece, *, chunked: bool) -> bytes:
    """A piece on the wire."""
    if isinstance(piece, End):
        return b"".join((b"0\r\n", field_bytes(piece.trailers), b"\r\n")) if chunked else b""
    return b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece


def _stated_body(head: RequestHead | ResponseHead) -> SizedBody | ChunkedBody | None:
    codings = values_of(head.headers, b"transfer-encoding")
    lengths = values_of(head.headers, b"content-length")
    if codings:
        if lengths:
            raise MessageRefused("Content-Length and Transfer-Encoding contradict each other")
        if head.minor_version == 0:
            raise MessageRefused("HTTP/1.0 has no Transfer-Encoding")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise MessageRefused("the only Transfer-Encoding is chunked", 501)
        return ChunkedBody()
    if lengths:
        if len(lengths) > 1 or not _NUM_BYTES.fullmatch(lengths[0]):
            raise MessageRefused("Content-Length is not one number")
        return SizedBody(int(lengths[0]))
    return None


def _cut(buffer: bytearray, num_bytes: int) -> bytes:
    """Take up to so many bytes off the front."""
    if num_bytes >= len(buffer):
        piece = bytes(buffer)
        buffer.clear()
        return piece
    piece = bytes(memoryview(buffer)[:num_bytes])
    del buffer[:num_bytes]
    return piece
