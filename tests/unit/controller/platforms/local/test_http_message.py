"""Heads: what is read, and what is refused because another reader could understand it differently."""

import pytest

from controller.platforms.local.http_message import (
    MessageRefused,
    keeps_alive,
    listed,
    parse_request,
    parse_response,
    refuse_garbage,
    request_bytes,
    response_bytes,
)


def test_a_request_is_read_and_written() -> None:
    head = b"POST /v1?a=1 HTTP/1.1\r\nHost: rollout\r\nX-Odd:\t a: b \t\r\nX-Empty:\r\n\r\n"
    request = parse_request(head)
    assert (request.method, request.target, request.minor_version) == (b"POST", b"/v1?a=1", 1)
    assert request.headers == [(b"host", b"rollout"), (b"x-odd", b"a: b"), (b"x-empty", b"")]
    written = request_bytes(request.method, request.target, request.headers)
    assert written == b"POST /v1?a=1 HTTP/1.1\r\nhost: rollout\r\nx-odd: a: b\r\nx-empty: \r\n\r\n"


@pytest.mark.parametrize(
    ("line", "reason"), [(b"HTTP/1.1 204 No Content", b"No Content"), (b"HTTP/1.1 204 ", b""), (b"HTTP/1.0 204", b"")]
)
def test_an_answer_is_read_and_written(line: bytes, reason: bytes) -> None:
    response = parse_response(line + b"\r\nX-A: \xe9\r\n\r\n")
    assert (response.status, response.reason, response.headers) == (204, reason, [(b"x-a", b"\xe9")])
    assert response_bytes(204, reason, response.headers) == b"HTTP/1.1 204 " + reason + b"\r\nx-a: \xe9\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"GET  / HTTP/1.1",
        b"GET / HTTP/2.0",
        b"GET / a HTTP/1.1",
        b"G@T / HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET / HTTP/1.1\r\nX-A : 1",
        b"GET / HTTP/1.1\r\nX A: 1",
        b"GET / HTTP/1.1\r\n: 1",
        b"GET / HTTP/1.1\r\nX-A: 1\r\n folded",
        b"GET / HTTP/1.1\r\nX-A: \x00",
        b"GET / HTTP/1.1\r\nX-A: 1\nX-B: 2",
        b"GET / HTTP/1.1\r\nX-A: 1\rX-B: 2",
        b"GET / HTTP/1.1\r\nno colon",
    ],
)
def test_a_malformed_request_is_refused(lines: bytes) -> None:
    with pytest.raises(MessageRefused) as refused:
        parse_request(lines + b"\r\n\r\n")
    assert refused.value.status == 400


def test_a_tunnel_is_refused() -> None:
    with pytest.raises(MessageRefused, match="tunnel") as refused:
        parse_request(b"CONNECT a:1 HTTP/1.1\r\n\r\n")
    assert refused.value.status == 501


@pytest.mark.parametrize("line", [b"HTTP/1.1 99 X", b"HTTP/1.1 600 X", b"HTTP/1.1 20 X", b"HTTP/2 200", b"no http"])
def test_a_malformed_answer_is_refused(line: bytes) -> None:
    with pytest.raises(MessageRefused):
        parse_response(line + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("beginning", "refused"),
    [
        (b"GET / HT", False),
        (b"GET / HTTP/1.1\r", False),
        (b"GET / HTTP/1.1\r\nX: \t\xff\r\n", False),
        (b"GET /\n", True),
        (b"GET /\rX", True),
        (b"\x16\x03\x01", True),
    ],
)
def test_what_cannot_become_a_head_is_refused_at_once(beginning: bytes, refused: bool) -> None:
    if refused:
        with pytest.raises(MessageRefused):
            refuse_garbage(beginning)
    else:
        refuse_garbage(beginning)


def test_lists_of_words_and_the_end_of_a_connection() -> None:
    head = parse_request(b"GET / HTTP/1.1\r\nConnection: X-A, keep-alive\r\nCONNECTION: Close,,\r\n\r\n")
    assert listed(head.headers, b"connection") == {b"x-a", b"keep-alive", b"close"}
    assert not keeps_alive(head)
    assert keeps_alive(parse_request(b"GET / HTTP/1.1\r\n\r\n"))
    assert not keeps_alive(parse_request(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"))
