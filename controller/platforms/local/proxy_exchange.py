"""One request to a replica and its answer back, both at the same time where they are long."""

import asyncio
from collections.abc import Callable

from controller.platforms.local.http_message import RequestHead, ResponseHead, request_bytes, response_bytes
from controller.platforms.local.http_relay import pass_received, pass_rest
from controller.platforms.local.http_stream import BrokenStream, HttpStream
from controller.platforms.local.proxy_headers import end_to_end, framing, request_headers


async def pass_on(
    caller: HttpStream,
    request: RequestHead,
    host: bytes,
    target: bytes,
    replica: HttpStream,
    answer_moved: Callable[[], None],
) -> None:
    """Send the request and bring back the answer. ``answer_moved`` is called at its beginning and at each piece.

    The answer may begin, and end, before the request does. Raises ``BrokenStream`` with the side that broke off.
    """
    chunked = not caller.body_has_known_size
    head = request_bytes(request.method, target, request_headers(request, host, caller.peer, chunked=chunked))
    upload: asyncio.Task[BrokenStream | None] | None = None
    try:
        if not pass_received(caller, replica, head, chunked=chunked):
            upload = asyncio.create_task(_upload(caller, replica, chunked=chunked))
    except BrokenStream as error:
        if error.stream is caller:
            raise
        # The replica may have left an answer before it went: that, or its lack, decides.
    try:
        response = await replica.receive_response(request.method)
        answer_moved()
        await _bring_back(response, request, replica, caller, answer_moved)
    except BrokenStream as error:
        broken_by_caller = upload.result() if upload is not None and upload.done() else None
        raise broken_by_caller or error from None
    finally:
        if upload is not None:
            upload.cancel()
            await asyncio.wait([upload])


async def _upload(caller: HttpStream, replica: HttpStream, *, chunked: bool) -> BrokenStream | None:
    """The rest of a request. The replica may answer early and stop reading, so only the caller's failure counts."""
    try:
        await pass_rest(caller, replica, chunked=chunked)
    except BrokenStream as error:
        if error.stream is caller:
            replica.abort()
            return error
    return None


async def _bring_back(
    response: ResponseHead,
    request: RequestHead,
    replica: HttpStream,
    caller: HttpStream,
    answer_moved: Callable[[], None],
) -> None:
    knows_chunks = request.minor_version > 0
    chunked = knows_chunks and not replica.body_has_known_size
    headers = end_to_end(response.headers) + framing(response.headers, chunked=chunked)
    if not caller.keeps_alive:
        headers.append((b"connection", b"close"))
    head = response_bytes(response.status, response.reason, headers)
    if not pass_received(replica, caller, head, chunked=chunked):
        await pass_rest(replica, caller, chunked=chunked, moved=answer_moved)
    await caller.drain()
