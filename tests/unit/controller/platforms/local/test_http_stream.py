"""One connection without a socket: how much it takes in, and when it can be used again."""

import asyncio

import h11
import pytest

from controller.platforms.local.http_stream import BrokenStream, HttpStream

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = (h11.Response(status_code=200, headers=[(b"content-length", b"0")]), h11.EndOfMessage())
KIB = 1024


class FakeTransport(asyncio.Transport):
    """Keeps what is written; remembers whether the other side has to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def stream(role: type[h11.CLIENT] | type[h11.SERVER]) -> tuple[HttpStream, FakeTransport]:
    made, transport = HttpStream(role), FakeTransport()
    made.connection_made(transport)
    return made, transport


async def test_requests_sent_at_once_are_not_gathered() -> None:
    caller, transport = stream(h11.SERVER)
    flood, num_taken = GET * (64 * KIB // len(GET)), 0
    for _ in range(30):
        while not transport.is_paused:
            caller.data_received(flood)
            num_taken += len(flood)
        assert await caller.receive_request() is not None
        assert caller.received() == [h11.EndOfMessage()]
        caller.send(*OK)
        assert caller.next_message()
    assert num_taken < 512 * KIB


async def test_the_other_side_goes_on_once_a_body_is_taken() -> None:
    caller, transport = stream(h11.SERVER)
    caller.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + bytes(200_000))
    assert transport.is_paused
    await caller.receive_request()
    assert sum(len(piece.data) for piece in caller.received() if isinstance(piece, h11.Data)) == 200_000
    assert not transport.is_paused
    caller.data_received(bytes(100_000))
    assert len(await caller.receive_rest()) == 100_000
    assert not caller.has_unread_body


async def test_another_message_needs_both_to_be_complete() -> None:
    caller, transport = stream(h11.SERVER)
    assert caller.next_message(), "nothing has begun"
    caller.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
    await caller.receive_request()
    assert not caller.has_answered
    caller.send(*OK)
    assert caller.has_answered
    assert not caller.next_message(), "the request is not whole"
    caller.data_received(b"x")
    assert await caller.receive_rest() == b"x"
    assert caller.next_message()
    assert not caller.has_answered
    assert transport.written.startswith(b"HTTP/1.1 200")
    caller.eof_received()
    assert not caller.next_message()


@pytest.mark.parametrize("version", [b"1.0", b"1.1\r\nConnection: close"])
async def test_who_says_that_nothing_follows_is_believed(version: bytes) -> None:
    replica, _ = stream(h11.CLIENT)
    replica.send(h11.Request(method="GET", target="/", headers=[(b"host", b"a")]), h11.EndOfMessage())
    version, *headers = version.split(b"\r\n")
    replica.data_received(b"\r\n".join([b"HTTP/" + version + b" 200 OK", *headers, b"Content-Length: 2", b"", b"hi"]))
    assert (await replica.receive_response()).status_code == 200
    assert await replica.receive_rest() == b"hi"
    assert not replica.next_message()


async def test_what_comes_unasked_is_no_silence() -> None:
    replica, _ = stream(h11.CLIENT)
    assert replica.is_silent
    replica.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not replica.is_silent


async def whole_answer(replica: HttpStream) -> bytes:
    await replica.receive_response()
    return await replica.receive_rest()


@pytest.mark.parametrize("received", [b"", b"HTTP/1.1 200 OK\r\nX", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"])
async def test_an_end_within_an_answer_is_called_that(received: bytes) -> None:
    replica, _ = stream(h11.CLIENT)
    replica.send(h11.Request(method="GET", target="/", headers=[(b"host", b"a")]), h11.EndOfMessage())
    if received:
        replica.data_received(received)
    replica.connection_lost(None)
    with pytest.raises(BrokenStream, match="the connection ended within a message"):
        await whole_answer(replica)
