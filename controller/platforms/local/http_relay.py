"""Passes a message from one connection to another, each piece as soon as it comes."""

from collections.abc import Callable, Iterable

import h11

from controller.platforms.local.http_stream import HttpStream
from controller.platforms.local.proxy_headers import passed_trailers


def pass_received(source: HttpStream, sink: HttpStream, head: h11.Request | h11.Response) -> bool:
    """Pass on a head and what has come in of its body. True where that is the whole message.

    Raises ``BrokenStream``.
    """
    sink.send(head, *_as_sent(source.received(), sink))
    return not source.has_unread_body


async def pass_rest(source: HttpStream, sink: HttpStream, *, moved: Callable[[], None] | None = None) -> None:
    """Pass on what is still to come; waits while the sink is slow. ``moved`` is called after each piece.

    Raises ``BrokenStream`` with the side that broke off.
    """
    while source.has_unread_body:
        await sink.drain()
        sink.send(*_as_sent(await source.receive(), sink))
        if moved is not None:
            moved()


def _as_sent(pieces: list[h11.Event], sink: HttpStream) -> Iterable[h11.Event]:
    for piece in pieces:
        if isinstance(piece, h11.EndOfMessage) and piece.headers:
            yield h11.EndOfMessage(headers=passed_trailers(piece.headers) if sink.takes_trailers else [])
        else:
            yield piece
