"""Where bodies end, however the bytes arrive; and what leaves that in doubt."""

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.platforms.local.http_body import (
    Body,
    BodyUntilClose,
    ChunkedBody,
    End,
    SizedBody,
    body_of_request,
    body_of_response,
    encode,
)
from controller.platforms.local.http_message import HEAD_END, MessageRefused, parse_request, parse_response

CHUNKS = b"3;x=1\r\none\r\n00A\r\n0123456789\r\n0\r\n"


def read(body: Body, received: bytes, *, step: int) -> tuple[bytes, End | None, bytes]:
    """Content, end and what is left over, where the bytes come in steps of so many."""
    buffer, content = bytearray(), b""
    for start in range(0, len(received), step):
        buffer += received[start : start + step]
        while (piece := body.take(buffer)) is not None:
            if isinstance(piece, End):
                return content, piece, bytes(buffer) + received[start + step :]
            content += piece
    return content, None, bytes(buffer)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_a_body_ends_where_it_says(step: int) -> None:
    assert read(SizedBody(5), b"helloNEXT", step=step) == (b"hello", End(), b"NEXT")
    assert read(SizedBody(0), b"NEXT", step=step) == (b"", End(), b"NEXT")
    assert read(SizedBody(5), b"hell", step=step) == (b"hell", None, b"")
    assert read(ChunkedBody(), CHUNKS + b"\r\nNEXT", step=step) == (b"one0123456789", End(), b"NEXT")
    trailers = b"X-Sum: 1\r\nContent-Length: 9\r\n\r\nNEXT"
    assert read(ChunkedBody(), CHUNKS + trailers, step=step) == (b"one0123456789", End([(b"x-sum", b"1")]), b"NEXT")
    assert read(BodyUntilClose(), b"all of it", step=step) == (b"all of it", None, b"")


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    "received",
    [
        b"-1\r\n",
        b"0x3\r\none\r\n",
        b"\r\n",
        b"3\nonE\n",
        b"3\r\nonetwo\r\n",
        b"3\r\none\n",
        b"3\r\none\n0\n\n",
        b"1" * 16 + b"\r\n",
        b"3;" + b"x" * 5000,
        b"0\r\nbad trailer\r\n\r\n",
    ],
)
def test_malformed_chunks_are_refused(received: bytes, step: int) -> None:
    with pytest.raises(MessageRefused):
        read(ChunkedBody(), received, step=step)


def test_endless_trailers_are_refused() -> None:
    with pytest.raises(MessageRefused):
        read(ChunkedBody(), b"0\r\n" + b"x" * 70000, step=1000)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"Content-Length: 5\r\nContent-Length: 6", 400),
        (b"Content-Length: 5\r\nContent-Length: 5", 400),
        (b"Content-Length: 5, 5", 400),
        (b"Content-Length: +5", 400),
        (b"Content-Length: -5", 400),
        (b"Content-Length: 0x5", 400),
        (b"Content-Length: ", 400),
        (b"Transfer-Encoding: gzip", 501),
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
        (b"Transfer-Encoding: xchunked", 501),
        (b"Transfer-Encoding: ", 501),
    ],
)
def test_a_body_whose_end_is_in_doubt_is_refused(headers: bytes, status: int) -> None:
    with pytest.raises(MessageRefused) as refused:
        body_of_request(parse_request(b"POST / HTTP/1.1\r\n" + headers + HEAD_END))
    assert refused.value.status == status
    with pytest.raises(MessageRefused):
        body_of_response(parse_response(b"HTTP/1.1 200 OK\r\n" + headers + HEAD_END), b"GET")


def test_chunks_need_http_1_1() -> None:
    with pytest.raises(MessageRefused):
        body_of_request(parse_request(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"))


@pytest.mark.parametrize(
    ("status", "method", "headers", "kind"),
    [
        (b"200", b"GET", b"Content-Length: 5", SizedBody),
        (b"200", b"GET", b"Transfer-Encoding: Chunked", ChunkedBody),
        (b"200", b"GET", b"X: 1", BodyUntilClose),
        (b"200", b"HEAD", b"X: 1", SizedBody),
        (b"200", b"HEAD", b"Transfer-Encoding: chunked", SizedBody),
        (b"204", b"GET", b"X: 1", SizedBody),
        (b"304", b"GET", b"Content-Length: 5", SizedBody),
    ],
)
def test_bodies_of_answers(status: bytes, method: bytes, headers: bytes, kind: type) -> None:
    response = parse_response(b"HTTP/1.1 " + status + b" X\r\n" + headers + HEAD_END)
    body = body_of_response(response, method)
    assert isinstance(body, kind)
    if status != b"200" or method == b"HEAD":
        assert body.take(bytearray()) == End()


def test_pieces_on_the_wire() -> None:
    assert encode(b"0123456789", chunked=True) == b"a\r\n0123456789\r\n"
    assert encode(b"0123456789", chunked=False) == b"0123456789"
    assert encode(End(), chunked=False) == b""
    assert encode(End([(b"x-sum", b"1")]), chunked=True) == b"0\r\nx-sum: 1\r\n\r\n"


NOISE = (b"\n", b"\r", b" ", b"\t", b"\x00", b":", b"\xff")
STARTS = (b"POST /x HTTP/1.1\r\nHost: a\r\n", b"GET / HTTP/1.0\r\nHost: a\r\n")
FIELDS = (
    *(b"Content-Length: 3\r\n", b"Content-Length: 03\r\n", b"Transfer-Encoding: chunked\r\n", b"X-A: b\r\n"),
    *(b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: \tchunked \r\n", b"Content-Length: 3, 3\r\n", *NOISE),
)
CONTENTS = (
    *(b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nX-B: c\r\n\r\n", b"3;a=b\r\nabc\r\n", b"A\r\n", b"abc", b"\r\n"),
    *(b"0\r\n", b"0123456789", *NOISE),
)
MESSAGES = st.tuples(
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(FIELDS), max_size=3).map(b"".join),
    st.just(b"\r\n"),
    st.lists(st.sampled_from(CONTENTS), max_size=5).map(b"".join),
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(MESSAGES, st.integers(1, 40))
def test_what_is_accepted_is_understood_as_h11_does(received: bytes, step: int) -> None:
    """Stricter than another parser is well; different is how requests are smuggled."""
    end = received.find(HEAD_END)
    if end < 0:
        return
    try:
        request = parse_request(received[: end + len(HEAD_END)])
        content, body_end, left = read(body_of_request(request), received[end + len(HEAD_END) :], step=step)
    except MessageRefused:
        return
    if sum(name == b"host" for name, _ in request.headers) != 1:
        return
    other = h11.Connection(h11.SERVER)
    other.receive_data(received)
    head = other.next_event()
    assert isinstance(head, h11.Request)
    assert (head.method, head.target) == (request.method, request.target)
    data, is_whole = b"", False
    while not is_whole and isinstance(event := other.next_event(), h11.Event):
        is_whole = isinstance(event, h11.EndOfMessage)
        data += bytes(event.data) if isinstance(event, h11.Data) else b""
    if content or body_end is not None:
        assert data == content
    if body_end is not None and received[end + len(HEAD_END) :]:
        assert is_whole
        assert other.trailing_data[0] == left
