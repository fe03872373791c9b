"""Long requests and answers through the proxy: in pieces, both ways at once, broken off anywhere."""

import asyncio
from contextlib import suppress

import pytest

from tests.unit.controller.platforms.local.proxy_stand import GET, HELLO, POST, stand
from tests.unit.controller.platforms.local.waiting import until

MIB = 2**20
NUM_LARGE_BYTES = 50 * MIB
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + CHUNKED


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """A chunk's content; empty at the end of the body."""
    size = int(await reader.readline(), 16)
    content = await reader.readexactly(size)
    assert await reader.readline() == b"\r\n"
    return content


async def test_each_event_arrives_before_the_next_is_sent() -> None:
    seen = asyncio.Queue[bytes]()

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(STREAM_HEAD)
        for number in range(5):
            event = b"data: %d\n\n" % number
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            assert await seen.get() == event
        writer.write(b"0\r\n\r\n")

    async with stand(events) as proxied, proxied.connection() as (reader, writer):
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-type: text/event-stream" in head.lower()
        while event := await read_chunk(reader):
            seen.put_nowait(event)


async def test_each_piece_of_a_request_arrives_and_is_answered_before_the_next_is_sent() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(STREAM_HEAD)
        while piece := await read_chunk(reader):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        writer.write(b"0\r\nX-Sum: 1\r\n\r\n")

    async with stand(echo) as proxied, proxied.connection() as (reader, writer):
        for _ in range(2):
            writer.write(POST + CHUNKED)
            await reader.readuntil(b"\r\n\r\n")
            for piece in (b"one", b"two" * 100_000, b"three"):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                answered = b""
                while len(answered) < len(piece):
                    answered += await read_chunk(reader)
                assert answered == piece
            writer.write(b"0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).lower() == b"0\r\nx-sum: 1\r\n\r\n"


class Sender:
    """Writes a large body for as long as it is taken."""

    def __init__(self) -> None:
        self.num_sent = 0

    async def send(self, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            for _ in range(NUM_LARGE_BYTES // MIB):
                writer.write(bytes(MIB))
                await writer.drain()
                self.num_sent += MIB

    async def stalled(self) -> int:
        """Wait until nobody takes more; how much was sent until then."""
        before = -1
        while before < self.num_sent or not self.num_sent:
            before = self.num_sent
            await asyncio.sleep(0.1)
        return before


async def test_a_large_request_waits_for_a_slow_replica() -> None:
    go_on = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        await go_on.wait()
        num_read = 0
        while num_read < NUM_LARGE_BYTES:
            num_read += len(await reader.read(MIB))
        await HELLO(reader, writer, head)

    async with stand(slow, timeout_s=60.0) as proxied, proxied.connection() as (reader, writer):
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % NUM_LARGE_BYTES)
        sender = Sender()
        sending = asyncio.create_task(sender.send(writer))
        assert await sender.stalled() < NUM_LARGE_BYTES // 2, "the proxy gathers the body instead of waiting"
        go_on.set()
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 201")
        await sending


async def test_a_large_answer_waits_for_a_slow_caller() -> None:
    sender = Sender()

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % NUM_LARGE_BYTES)
        await sender.send(writer)

    async with stand(large, timeout_s=60.0) as proxied, proxied.connection(limit=1024) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        assert await sender.stalled() < NUM_LARGE_BYTES // 2, "the proxy gathers the body instead of waiting"
        assert len(await reader.readexactly(NUM_LARGE_BYTES)) == NUM_LARGE_BYTES


async def test_a_caller_who_takes_no_more_and_goes_frees_the_slot() -> None:
    sender = Sender()

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % NUM_LARGE_BYTES)
        await sender.send(writer)

    async with stand(large, timeout_s=600.0) as proxied, proxied.connection(limit=1024) as (_, writer):
        writer.write(GET)
        await sender.stalled()
        assert proxied.function.num_in_flight == 1
        writer.write_eof()
        await until(lambda: proxied.function.num_in_flight == 0)


async def test_an_answer_may_come_before_the_request_is_whole() -> None:
    async with stand(HELLO) as proxied, proxied.connection() as (reader, writer):
        writer.write(POST + b"Content-Length: 10\r\n\r\n01234")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 201")
        writer.write(b"56789" + GET)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 201"), "the connection goes on"


async def test_the_rest_of_a_long_request_that_was_answered_is_not_waited_for() -> None:
    async with stand(HELLO, timeout_s=60.0) as proxied, proxied.connection() as (reader, writer):
        writer.write(POST + b"Content-Length: 1000000000\r\n\r\n01234")
        async with asyncio.timeout(20.0):
            assert (await reader.read()).endswith(b"hello")


async def test_a_caller_who_waits_to_be_asked_is_told_an_early_answer() -> None:
    async with stand(HELLO, timeout_s=0.05) as proxied, proxied.connection() as (reader, writer):
        await proxied.function.slot.acquire()
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 504")


@pytest.mark.parametrize("body", [b"zz\r\n", b"3\r\nonetwo\r\n"])
async def test_a_malformed_body_is_refused_and_the_replica_learns_of_it(body: bytes) -> None:
    left = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        with suppress(ConnectionError):
            await reader.read()
        left.set()

    async with stand(wait) as proxied, proxied.connection() as (reader, writer):
        writer.write(POST + CHUNKED)
        await until(lambda: bool(proxied.heads))
        writer.write(body)
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        await until(left.is_set)
        assert proxied.function.num_in_flight == 0


async def test_a_caller_who_goes_during_the_upload_frees_the_slot_and_the_replica_learns_of_it() -> None:
    left = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        with suppress(ConnectionError):
            await reader.read()
        left.set()

    async with stand(take) as proxied, proxied.connection() as (_, writer):
        writer.write(POST + b"Content-Length: 1000\r\n\r\n01234")
        await until(lambda: proxied.function.num_in_flight == 1)
        writer.close()
        await until(left.is_set)
        await until(lambda: proxied.function.num_in_flight == 0)


async def test_a_caller_who_goes_during_the_answer_frees_the_slot_and_the_replica_learns_of_it() -> None:
    left = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(STREAM_HEAD + b"3\r\none\r\n")
        with suppress(ConnectionError):
            await reader.read()
        left.set()

    async with stand(stream, timeout_s=600.0) as proxied, proxied.connection() as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"one\r\n")
        writer.close()
        await until(left.is_set)
        await until(lambda: proxied.function.num_in_flight == 0)


async def test_an_answer_that_ends_with_the_connection_becomes_chunks() -> None:
    async def until_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        writer.close()

    async with stand(until_close) as proxied:
        assert (await proxied.call(GET)).endswith(b"9\r\nall of it\r\n0\r\n\r\n")


async def test_a_caller_of_http_1_0_gets_no_chunks() -> None:
    async def chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(STREAM_HEAD + b"3\r\none\r\n3\r\ntwo\r\n0\r\nX-Sum: 1\r\n\r\n")

    async with stand(chunks) as proxied, proxied.connection() as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\nHost: rollout\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head.lower()
        assert body == b"onetwo"


async def test_informational_answers_are_not_the_answer() -> None:
    async def hints(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await HELLO(reader, writer, head)

    async with stand(hints) as proxied:
        assert (await proxied.call(GET)).startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize("answer", [b"no http\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1 200 OK\r\nX"])
async def test_502_where_the_answer_is_no_answer(answer: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(answer)
        writer.close()

    async with stand(handler) as proxied:
        assert (await proxied.call(GET)).startswith(b"HTTP/1.1 502")


async def test_silence_is_cut_however_long_the_request_may_take() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        for piece in (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"a", b"a", b"a"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.25)
        await reader.read()

    async with stand(stall, timeout_s=600.0, idle_timeout_s=0.6) as proxied:
        assert (await proxied.call(GET)).endswith(b"\r\n\r\naaa"), "the pieces came, then nothing"
        await until(lambda: proxied.function.num_in_flight == 0)


async def test_probes_reach_no_replica() -> None:
    async with stand(HELLO) as proxied:
        probe = b"GET / HTTP/1.1\r\nHost: rollout\r\nK-Network-Probe: queue\r\n\r\n"
        assert (await proxied.call(probe)).endswith(b"\r\n\r\nqueue\n")
        assert proxied.heads == []
