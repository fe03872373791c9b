"""The proxy between real sockets: routing, errors, timeouts, and callers who go."""

import asyncio
import socket
import struct
from contextlib import suppress

import pytest

from controller.platforms.local.activator import QueueFull, TurnedAway
from controller.platforms.local.proxy import PortInUse, Proxy
from tests.unit.controller.platforms.local.proxy_stand import GET, HELLO, answering, silent, stand
from tests.unit.controller.platforms.local.waiting import until


async def test_request_and_answer_pass_unchanged() -> None:
    async with stand(HELLO) as proxied:
        answer = await proxied.call(
            b"PUT /x?a=1 HTTP/1.1\r\nHost: rollout\r\nX-Mine: 1\r\nKeep-Alive: 9\r\nContent-Length: 0\r\n\r\n"
        )
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201 Made\r\n")
        assert b"x-a: b" in head.lower()
        assert body == b"hello"
        sent = proxied.heads[0].split(b"\r\n")
        assert sent[0] == b"PUT /x?a=1 HTTP/1.1"
        headers = {line.lower().partition(b":")[0] for line in sent[1:] if line}
        added = {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"forwarded", b"x-request-id"}
        assert headers == {b"content-length", b"host", b"x-mine"} | added


async def test_bodies_of_any_size_and_framing() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    payload = bytes(range(256)) * 4096
    async with stand(echo) as proxied:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (payload[:7], payload[7:])) + b"0\r\n\r\n"
        answer = await proxied.call(b"POST / HTTP/1.1\r\nHost: rollout\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        assert answer.endswith(b"\r\n\r\n" + payload)


async def test_one_connection_carries_many_requests_also_sent_at_once() -> None:
    async with stand(HELLO) as proxied:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
        writer.write(GET * 3)
        for _ in range(3):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201")
            assert await reader.readexactly(5) == b"hello"
        writer.close()


async def test_pieces_of_an_answer_pass_as_they_come() -> None:
    go_on = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3\r\none\r\n")
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with stand(stream) as proxied:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
        writer.write(GET)
        await reader.readuntil(b"one\r\n")
        go_on.set()
        await reader.readuntil(b"two\r\n0\r\n\r\n")
        writer.close()


async def test_a_caller_may_wait_to_be_asked_for_the_body() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        assert b"100-continue" not in head
        assert await reader.readexactly(2) == b"{}"
        await HELLO(reader, writer, head)

    async with stand(handler) as proxied:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: rollout\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"{}")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 201")
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: other\r\n\r\n", b"404"),
        (b"GET / HTTP/1.1\r\nHost: rollout\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"nonsense\r\nHost: a\r\n\r\n", b"400"),
    ],
)
async def test_requests_that_reach_no_replica(request_bytes: bytes, status: bytes) -> None:
    async with stand(HELLO) as proxied:
        assert (await proxied.call(request_bytes)).startswith(b"HTTP/1.1 " + status)
        assert proxied.heads == []


async def test_head_has_no_body() -> None:
    async with stand(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")) as proxied:
        found = await proxied.call(b"HEAD / HTTP/1.1\r\nHost: rollout\r\n\r\n")
        unknown = await proxied.call(b"HEAD / HTTP/1.1\r\nHost: other\r\n\r\n")
        refused = await proxied.call(
            b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert found.startswith(b"HTTP/1.1 200")
        assert unknown.startswith(b"HTTP/1.1 404")
        assert found.endswith(b"\r\n\r\n")
        assert unknown.endswith(b"\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 400")
        assert refused.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("error", [QueueFull(), TurnedAway()])
async def test_503_when_no_slot_is_given(error: Exception) -> None:
    async with stand(HELLO, error=error) as proxied:
        assert (await proxied.call(GET)).startswith(b"HTTP/1.1 503")


async def test_502_at_once_when_the_replica_ends_before_its_answer() -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.transport.abort()

    async with stand(die, timeout_s=60.0) as proxied:
        assert (await proxied.call(GET)).startswith(b"HTTP/1.1 502")


async def test_an_answer_that_breaks_off_is_cut_for_the_caller_too() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.transport.abort()

    async with stand(half) as proxied:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
        writer.write(GET)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readuntil(b"0123456789")
        writer.close()


@pytest.mark.parametrize("limit", [{"timeout_s": 0.05}, {"response_start_timeout_s": 0.05}])
async def test_504_when_no_answer_begins_in_time(limit: dict[str, float]) -> None:
    async with stand(silent, **limit) as proxied:
        assert (await proxied.call(GET)).startswith(b"HTTP/1.1 504")
        assert proxied.function.num_in_flight == 0


async def test_the_wait_for_a_slot_counts() -> None:
    async with stand(HELLO, timeout_s=0.05) as proxied:
        await proxied.function.slot.acquire()
        answer = await proxied.call(b"POST / HTTP/1.1\r\nHost: rollout\r\nContent-Length: 2\r\n\r\n{}")
        assert answer.startswith(b"HTTP/1.1 504")
        assert proxied.heads == []


async def test_after_its_beginning_an_answer_has_the_whole_request_time() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        await writer.drain()
        await asyncio.sleep(0.7)
        writer.write(b"llo")

    async with stand(slow, response_start_timeout_s=0.5, timeout_s=60.0) as proxied:
        assert (await proxied.call(GET)).endswith(b"hello")
    async with stand(slow, timeout_s=0.5) as proxied:
        assert (await proxied.call(GET)).endswith(b"he"), "cut, because the rest came too late"


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_a_caller_who_goes_frees_the_slot_and_the_replica_learns_of_it(how: str) -> None:
    left = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        with suppress(ConnectionError):
            await reader.read()
        left.set()

    async with stand(wait, timeout_s=600.0) as proxied:
        _, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
        writer.write(GET)
        await until(lambda: bool(proxied.heads))
        assert proxied.function.num_in_flight == 1
        if how == "resets":
            no_goodbye = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_goodbye)
        writer.close()
        await until(left.is_set)
        assert proxied.function.num_in_flight == 0


async def test_a_caller_who_goes_leaves_the_queue() -> None:
    async with stand(HELLO, timeout_s=600.0) as proxied:
        function = proxied.function
        await function.slot.acquire()
        _, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
        writer.write(GET)
        await until(lambda: function.num_queued == 1)
        writer.close()
        await until(lambda: function.num_queued == 0)
        assert proxied.heads == []


async def test_a_request_may_come_byte_by_byte() -> None:
    async with stand(HELLO) as proxied, proxied.connection() as (reader, writer):
        for byte in GET:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 201")


async def test_a_stop_cuts_what_is_under_way() -> None:
    async with stand(silent, timeout_s=600.0) as proxied:
        async with proxied.connection() as (reader, writer), proxied.connection() as (idle_reader, _):
            writer.write(GET)
            await until(lambda: proxied.function.num_in_flight == 1)
            await proxied.proxy.stop()
            for cut in (reader, idle_reader):
                with suppress(ConnectionError):
                    assert await cut.read() == b""
        assert proxied.function.num_in_flight == 0


async def test_a_port_in_use_is_named() -> None:
    async with stand(HELLO) as proxied:
        with pytest.raises(PortInUse, match=f"cannot listen on 127.0.0.1:{proxied.port} .*choose another port"):
            await Proxy(lambda host, target: None).start("127.0.0.1", proxied.port)
