"""The readiness probe against small real servers."""

import asyncio
from collections.abc import Callable

import pytest

from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.readiness import is_ready


async def probe(answer: bytes, path: str | None) -> tuple[bool, list[bytes]]:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readline()
        if request:
            requests.append(request)
            writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        origin = HttpOrigin("127.0.0.1", server.sockets[0].getsockname()[1])
        ready = await is_ready(origin, path)
        origin.close()
        await asyncio.sleep(0.01)
    return ready, requests


@pytest.mark.parametrize(("status", "expected"), [(200, True), (204, True), (302, True), (404, False), (503, False)])
async def test_the_status_decides(status: int, expected: bool) -> None:
    ready, requests = await probe(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode(), "/readyz")
    assert ready is expected
    assert requests == [b"GET /readyz HTTP/1.1\r\n"]


async def test_without_a_path_an_open_port_is_enough() -> None:
    assert await probe(b"", None) == (True, [])


async def test_a_server_that_is_not_there_or_breaks_off_is_not_ready(unused_port: Callable[[], int]) -> None:
    assert (await probe(b"", "/readyz"))[0] is False
    assert await is_ready(HttpOrigin("127.0.0.1", unused_port()), "/readyz") is False
    assert await is_ready(HttpOrigin("127.0.0.1", unused_port()), None) is False
