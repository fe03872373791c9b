"""Bytes that are no request, or hide one in another: always an end, never a replica that sees what it should not."""

import asyncio
import random
from contextlib import suppress

import pytest

from controller.platforms.local.proxy import Proxy
from controller.platforms.local.proxy_exchange import _upload
from tests.unit.controller.platforms.local.proxy_stand import GET, HELLO, POST, stand
from tests.unit.controller.platforms.local.waiting import until

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: rollout\r\n\r\n"
LIMIT_S = 20.0
"""Only a proxy that hangs comes near it."""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (POST + b"Content-Length: 0\r\nContent-Length: 42\r\n\r\n" + SMUGGLED, b"400"),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"501"),
        (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (POST + b"Content-Length: 0\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n" + SMUGGLED, b"400"),
        (POST + b"Host: other\r\n\r\n" + SMUGGLED, b"400"),
        (b"GET / HTTP/1.1\r\n\r\n" + SMUGGLED, b"400"),
        (POST + b"X-Long: " + b"x" * 70_000, b"431"),
        (POST + b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/2.0\r\nHost: rollout\r\n\r\n" + SMUGGLED, b"505"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"GET /\n\n", b"400"),
        (b"CONNECT rollout:80 HTTP/1.1\r\nHost: rollout\r\n\r\n" + SMUGGLED, b"501"),
    ],
)
async def test_refused_and_closed(request_bytes: bytes, status: bytes) -> None:
    async with stand(HELLO) as proxied, proxied.connection() as (reader, writer):
        writer.write(request_bytes)
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert proxied.heads == []


async def test_an_upgrade_that_nobody_speaks_is_an_ordinary_request_with_its_body() -> None:
    async def take_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        assert b"upgrade" not in head.lower()
        assert await reader.readexactly(len(SMUGGLED)) == SMUGGLED
        await HELLO(reader, writer, head)

    async with stand(take_body) as proxied:
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
        request = POST + upgrade + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED
        assert (await proxied.call(request)).startswith(b"HTTP/1.1 201")
        assert len(proxied.heads) == 1


def noise(chance: random.Random) -> bytes:
    """A request with bytes changed, taken away, doubled or put in, or no request at all."""
    data = bytearray(
        chance.choice(
            (
                *(
                    GET,
                    POST + b"Content-Length: 5\r\n\r\nhello",
                    POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n",
                ),
                POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
                chance.randbytes(40),
            )
        )
        * chance.randint(1, 3)
    )
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(0, 3)] = chance.choice((b"", b"\r\n", b"\x00", b":", b"\n", chance.randbytes(2)))
    return bytes(data)


async def test_noise_leaves_nothing_behind() -> None:
    async with stand(HELLO) as proxied:

        async def send(seed: int) -> None:
            chance = random.Random(seed)
            async with proxied.connection() as (reader, writer), asyncio.timeout(LIMIT_S):
                data = noise(chance)
                cut = chance.randrange(len(data) + 1)
                writer.write(data[:cut])
                await asyncio.sleep(0)
                writer.write(data[cut:])
                if chance.random() < 0.5:
                    with suppress(ConnectionError):
                        writer.write_eof()
                        await reader.read()

        for first in range(0, 300, 50):
            await asyncio.gather(*(send(seed) for seed in range(first, first + 50)))
        await until(proxied.is_well)
        await until(lambda: not tasks_of_the_proxy())


def tasks_of_the_proxy() -> list[str]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name in (Proxy._serve.__qualname__, _upload.__qualname__)]
