"""A function for tests: starts in milliseconds and does what the query says. Run as ``python -m``, like a real one.

Answers any request with JSON about itself and the request. SIGTERM: it listens no more, finishes and ends.
``?sleep=S``   answers after S seconds; where the caller left before, its log says so
``?env=NAME``  tells the value of an environment variable
``?child=S``   starts a process that sleeps for S seconds
``TINY_STARTUP_S`` delays its readiness, ``TINY_CRASH`` ends it before.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

_children: list[subprocess.Popen[bytes]] = []
_busy: set[asyncio.Task[None]] = set()


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests of one connection, in turn."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            answering = asyncio.create_task(answer(head, reader, writer))
            _busy.add(answering)
            answering.add_done_callback(_busy.discard)
            await answering
    writer.close()


async def answer(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request."""
    request_line, *lines = head.rstrip().split("\r\n")
    method, target, _ = request_line.split()
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    query = dict(parse_qsl(urlsplit(target).query))
    if "child" in query:
        start_child(query["child"])
    if "sleep" in query and not await sleep(float(query["sleep"]), reader):
        print("caller left", flush=True)
        return
    told = {
        "instance": os.environ["HOSTNAME"],
        "pid": os.getpid(),
        "method": method,
        "path": urlsplit(target).path,
        "headers": headers,
        "num_body_bytes": len(body),
        "value": os.environ.get(query.get("env", "")),
        "children": [child.pid for child in _children],
    }
    content = json.dumps(told).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
    await writer.drain()


async def sleep(duration_s: float, reader: asyncio.StreamReader) -> bool:
    """Sleep; False where the caller left before the end."""
    left = asyncio.create_task(reader.read(1))
    done, _ = await asyncio.wait([left], timeout=duration_s)
    left.cancel()
    return not done


def start_child(duration_s: str) -> None:
    """A process that this function does not end."""
    _children.append(subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({duration_s})"]))


async def main() -> None:
    """Serve until SIGTERM, and then until the last answer."""
    await asyncio.sleep(float(os.environ.get("TINY_STARTUP_S", "0")))
    if "TINY_CRASH" in os.environ:
        sys.exit(3)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await asyncio.start_server(serve_connection, "127.0.0.1", int(os.environ["PORT"]))
    await ended.wait()
    server.close()
    if _busy:
        await asyncio.wait(_busy)


if __name__ == "__main__":
    asyncio.run(main())
