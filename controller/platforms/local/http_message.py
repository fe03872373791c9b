"""Heads of HTTP/1.1 messages, from bytes and to bytes. Pure (RFC 9110 5, RFC 9112 2-5).

What is not exactly as the grammar says is refused, so that no two readers of a message can understand it differently.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, in the order they came."""

HEAD_END = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-5][0-9]{2})(?: (" + _TEXT + rb"))?")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*(" + _TEXT + rb")")
_NEVER_IN_A_HEAD = re.compile(rb"(?<!\r)\n|\r[^\n]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class MessageRefused(Exception):
    """Not a message that can be passed on. ``status``: what its sender is told."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request."""

    method: bytes
    target: bytes
    headers: Headers
    minor_version: int = 1


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of an answer."""

    status: int
    reason: bytes
    headers: Headers
    minor_version: int = 1


def parse_request(head: bytes) -> RequestHead:
    """The bytes up to the empty line. Raises ``MessageRefused``."""
    first, *lines = head.removesuffix(HEAD_END).split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise MessageRefused("the first line is not that of an HTTP/1.1 request")
    method, target, minor_version = match.groups()
    if method == b"CONNECT":
        raise MessageRefused("CONNECT asks for a tunnel; there is none to a function", 501)
    return RequestHead(method, target, parse_fields(lines), int(minor_version))


def parse_response(head: bytes) -> ResponseHead:
    """The bytes up to the empty line. Raises ``MessageRefused``."""
    first, *lines = head.removesuffix(HEAD_END).split(b"\r\n")
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise MessageRefused("the first line is not that of an HTTP/1.1 answer")
    minor_version, status, reason = match.groups()
    return ResponseHead(int(status), reason or b"", parse_fields(lines), int(minor_version))


def parse_fields(lines: Iterable[bytes]) -> Headers:
    """Header or trailer lines. Raises ``MessageRefused``."""
    headers = []
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise MessageRefused("a header line is malformed")
        headers.append((match[1].lower(), match[2].rstrip(b" \t")))
    return headers


def refuse_garbage(beginning: bytes) -> None:
    """Look at a head that is not whole yet: what cannot become one is not waited for. Raises ``MessageRefused``."""
    if _NEVER_IN_A_HEAD.search(beginning):
        raise MessageRefused("this is not HTTP/1.1")


def values_of(headers: Headers, name: bytes) -> list[bytes]:
    """All values of a header."""
    return [value for key, value in headers if key == name]


def listed(headers: Headers, name: bytes) -> set[bytes]:
    """The elements of a header that is a list of words, in lower case."""
    words = (word.strip().lower() for value in values_of(headers, name) for word in value.split(b","))
    return {word for word in words if word}


def keeps_alive(head: RequestHead | ResponseHead) -> bool:
    """Whether the sender will send another message on the connection."""
    return head.minor_version > 0 and b"close" not in listed(head.headers, b"connection")


def request_bytes(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The head of a request on the wire."""
    return b"".join((method, b" ", target, b" HTTP/1.1\r\n", field_bytes(headers), b"\r\n"))


def response_bytes(status: int, reason: bytes, headers: Headers) -> bytes:
    """The head of an answer on the wire."""
    return b"".join((b"HTTP/1.1 %d " % status, reason, b"\r\n", field_bytes(headers), b"\r\n"))


def field_bytes(headers: Headers) -> bytes:
    """Header or trailer lines on the wire."""
    return b"".join([b"%b: %b\r\n" % field for field in headers])
