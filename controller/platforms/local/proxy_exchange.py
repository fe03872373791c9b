"""One request to a replica and its answer back, both at the same time where they are long."""

import asyncio
from collections.abc import Callable

import h11

from controller.platforms.local.http_relay import pass_received, pass_rest
from controller.platforms.local.http_stream import BrokenStream, HttpStream
from controller.platforms.local.proxy_headers import end_to_end, request_headers


async def pass_on(
    caller: HttpStream,
    request: h11.Request,
    host: bytes,
    target: bytes,
    replica: HttpStream,
    answer_moved: Callable[[], None],
) -> None:
    """Send the request and bring back the answer. ``answer_moved`` is called at its beginning and at each piece.

    The answer may begin, and end, before the request does. Raises ``BrokenStream`` with the side that broke off.
    """
    head = h11.Request(method=request.method, target=target, headers=request_headers(request, host, caller.peer))
    upload: asyncio.Task[BrokenStream | None] | None = None
    try:
        if not pass_received(caller, replica, head):
            upload = asyncio.create_task(_upload(caller, replica))
    except BrokenStream as error:
        if error.stream is caller:
            raise
        # The replica may have left an answer before it went: that, or its lack, decides.
    try:
        response = await replica.receive_response()
        answer_moved()
        await _bring_back(response, replica, caller, answer_moved)
    except BrokenStream as error:
        broken_by_caller = upload.result() if upload is not None and upload.done() else None
        raise broken_by_caller or error from None
    finally:
        if upload is not None:
            upload.cancel()
            await asyncio.wait([upload])


async def _upload(caller: HttpStream, replica: HttpStream) -> BrokenStream | None:
    """The rest of a request. The replica may answer early and stop reading, so only the caller's failure counts."""
    try:
        await pass_rest(caller, replica)
    except BrokenStream as error:
        if error.stream is caller:
            replica.abort()
            return error
    return None


async def _bring_back(
    response: h11.Response, replica: HttpStream, caller: HttpStream, answer_moved: Callable[[], None]
) -> None:
    head = h11.Response(status_code=response.status_code, reason=response.reason, headers=end_to_end(response.headers))
    if not pass_received(replica, caller, head):
        await pass_rest(replica, caller, moved=answer_moved)
    await caller.drain()
