"""Connections to a small real server: reuse, and what breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import h11
import pytest

from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.http_stream import BrokenStream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Made-By: test\r\n\r\nhi"


@asynccontextmanager
async def server(answers: list[bytes], *, close_after: bool = False) -> AsyncIterator[tuple[HttpOrigin, list[int]]]:
    """A server that gives the answers in turn; the list has the connection's number of each request."""
    seen: list[int] = []
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        number = len(connections)
        while (await reader.readuntil(b"\r\n\r\n")) and answers:
            seen.append(number)
            writer.write(answers.pop(0))
            if close_after:
                break
        writer.close()

    def serve_quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.append(task)

    tasks: list[asyncio.Future[None]] = []
    listening = await asyncio.start_server(serve_quietly, "127.0.0.1", 0)
    origin = HttpOrigin("127.0.0.1", listening.sockets[0].getsockname()[1])
    try:
        yield origin, seen
    finally:
        origin.close()
        listening.close()
        for writer in connections:
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def fetch(origin: HttpOrigin) -> tuple[int, bytes]:
    answer = await origin.fetch("GET", "/", headers={"host": "any"})
    return answer.status, answer.body


async def test_a_connection_is_used_again() -> None:
    async with server([OK, OK]) as (origin, seen):
        answer = await origin.fetch("GET", "/", headers={"host": "any"})
        assert (answer.status, answer.body, answer.headers["x-made-by"]) == (200, b"hi", "test")
        assert await fetch(origin) == (200, b"hi")
        assert seen == [1, 1]


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async with server([OK, OK], close_after=True) as (origin, seen):
        await fetch(origin)
        await asyncio.sleep(0.01)
        assert await fetch(origin) == (200, b"hi")
        assert seen == [1, 2]


async def test_a_connection_on_which_more_came_than_was_asked_for_is_not_used_again() -> None:
    async with server([OK + OK, OK]) as (origin, seen):
        assert await fetch(origin) == (200, b"hi")
        assert await fetch(origin) == (200, b"hi")
        assert seen == [1, 2]


async def test_a_line_break_makes_no_second_request() -> None:
    async with server([OK]) as (origin, seen):
        for headers, target in (({"host": "any", "x": "1\r\ny: 2"}, "/"), ({"host": "any"}, "/ HTTP/1.1\n\n")):
            with pytest.raises(h11.LocalProtocolError, match="Illegal"):
                await origin.fetch("GET", target, headers=headers)
        assert seen == []


async def test_a_connection_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.platforms.local.http_origin._MAX_IDLE_S", 0.0)
    async with server([OK, OK]) as (origin, seen):
        await fetch(origin)
        await fetch(origin)
        assert seen == [1, 2]


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b"no http\r\n\r\n"],
    ids=["none", "cut", "no http"],
)
async def test_an_answer_that_is_not_whole(answer: bytes) -> None:
    async with server([answer], close_after=True) as (origin, _):
        with pytest.raises(BrokenStream):
            await fetch(origin)


async def test_nobody_listens(unused_port: Callable[[], int]) -> None:
    with pytest.raises(OSError, match="Connect"):
        await fetch(HttpOrigin("127.0.0.1", unused_port()))


async def test_a_body_is_sent_whole() -> None:
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        received.set_result((head, await reader.readexactly(300_000)))
        writer.write(OK)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        origin = HttpOrigin("127.0.0.1", listening.sockets[0].getsockname()[1])
        await origin.fetch("POST", "/v1/rollout", headers={"host": "rollout"}, body=b"x" * 300_000)
        head, body = await received
        assert head.startswith(b"POST /v1/rollout HTTP/1.1\r\n")
        assert b"content-length: 300000" in head.lower()
        assert body == b"x" * 300_000
        origin.close()
