"""Answers that the proxy gives in a function's place."""

import asyncio
import contextlib
from http import HTTPStatus

import h11

from controller.platforms.local.http_stream import BrokenStream, HttpStream

_DISCARD_BYTES = 262144
_DISCARD_S = 0.5


async def answer_instead(caller: HttpStream, status: int, text: str) -> None:
    """Answer; where an answer has begun already, only cutting it shows that it is not whole.

    Raises ``BrokenStream``.
    """
    if caller.has_answered:
        caller.abort()
        return
    is_read = await discard_body(caller)
    caller.send(*_answer(caller, status, text, closes=not is_read))
    await caller.drain()


async def answer_broken(caller: HttpStream, error: BrokenStream) -> None:
    """A request that is no HTTP gets 400 or the like; an answer that broke off in the middle is cut here too."""
    if error.stream is not caller or caller.has_answered or not caller.is_open:
        caller.abort()
        return
    with contextlib.suppress(BrokenStream):
        caller.send(*_answer(caller, error.status, str(error), closes=True))
        await caller.drain()


async def discard_body(caller: HttpStream) -> bool:
    """Read what is left of a request, within reason: closing on unread bytes would take the answer along.

    False where something is left. Raises ``BrokenStream``.
    """
    if not caller.has_unread_body:
        return True
    if caller.waits_to_continue:
        return False
    num_bytes = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while num_bytes < _DISCARD_BYTES:
                pieces = await caller.receive()
                if not caller.has_unread_body:
                    return True
                num_bytes += sum(len(piece.data) for piece in pieces if isinstance(piece, h11.Data))
    return False


def _answer(caller: HttpStream, status: int, text: str, *, closes: bool) -> list[h11.Event]:
    body = f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    if closes:
        headers.append((b"connection", b"close"))
    head = h11.Response(status_code=status, reason=HTTPStatus(status).phrase.encode(), headers=headers)
    has_body = caller.request is None or caller.request.method != b"HEAD"
    return [head, *([h11.Data(data=body)] if has_body else []), h11.EndOfMessage()]
