"""Plain ASGI: a request's parts, an answer in one piece, and a transport that needs no network.

The transport streams: what the application sends arrives while the application goes on, in virtual time too.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import httpx
import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def headers_of(scope: Message) -> dict[str, str]:
    """Headers of a request, by lower case name."""
    return {name.decode().lower(): value.decode() for name, value in scope["headers"]}


async def body_of(receive: Receive) -> bytes:
    """The whole body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Answer in one piece."""
    named = {"content-length": str(len(body)), **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
    """Answer with JSON."""
    await respond(send, status, json.dumps(value).encode(), {"content-type": "application/json", **(headers or {})})


class _Stream(httpx.AsyncByteStream):
    def __init__(self, chunks: "asyncio.Queue[bytes | None]", serving: asyncio.Task[None], left: asyncio.Event) -> None:
        self._chunks, self._serving, self._left = chunks, serving, left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk

    async def aclose(self) -> None:
        self._left.set()
        self._serving.cancel()
        await asyncio.wait([self._serving])


class AsgiTransport(httpx.AsyncBaseTransport):
    """Calls an application in this process. ``is_down``: nobody can connect."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.is_down = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Start the application on the request; its answer streams."""
        if self.is_down:
            raise httpx.ConnectError("connection refused", request=request)
        body = await request.aread()
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        head: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        left, sent = asyncio.Event(), False

        async def receive() -> Message:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.set_result(message)
            elif message.get("body"):
                chunks.put_nowait(message["body"])

        async def serve() -> None:
            try:
                await self._app(_scope(request), receive, send)
            except BaseException as error:
                if not head.done():
                    head.set_exception(httpx.RemoteProtocolError(f"the server broke off: {error!r}", request=request))
            finally:
                chunks.put_nowait(None)

        serving = asyncio.create_task(serve())
        try:
            start = await asyncio.shield(head)
        except BaseException:
            left.set()
            serving.cancel()
            await asyncio.wait([serving])
            if head.done() and not head.cancelled():
                head.exception()
            raise
        return httpx.Response(start["status"], headers=start["headers"], stream=_Stream(chunks, serving, left))


def _scope(request: httpx.Request) -> Message:
    return {
        "type": "http",
        "method": request.method,
        "path": request.url.path,
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
    }


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals alone, and ends when it is told to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ended.wait()


@asynccontextmanager
async def served(app: App, **options: Any) -> AsyncIterator[str]:
    """The host and port of a real server of the application, on this loop. ``options`` are uvicorn's."""
    config = uvicorn.Config(
        app,
        port=0,
        interface="asgi3",
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=0,
        **options,
    )
    server = _QuietServer(config)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(0.005)
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.ended.set()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
