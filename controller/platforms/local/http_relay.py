"""Passes a message from one connection to another, each piece as soon as it comes."""

from collections.abc import Callable

from controller.platforms.local.http_body import End, encode
from controller.platforms.local.http_stream import HttpStream


def pass_received(source: HttpStream, sink: HttpStream, head: bytes, *, chunked: bool) -> bool:
    """Pass on a head and what has come in of its body. True where that is the whole message.

    Raises ``BrokenStream``.
    """
    pieces = source.received()
    whole = bool(pieces) and isinstance(pieces[-1], End)
    sink.write(b"".join([head, *(encode(piece, chunked=chunked) for piece in pieces)]), last=whole)
    return whole


async def pass_rest(
    source: HttpStream, sink: HttpStream, *, chunked: bool, moved: Callable[[], None] | None = None
) -> None:
    """Pass on what is still to come; waits while the sink is slow. ``moved`` is called after each piece.

    Raises ``BrokenStream`` with the side that broke off.
    """
    whole = False
    while not whole:
        await sink.drain()
        pieces = await source.receive()
        whole = isinstance(pieces[-1], End)
        sink.write(b"".join([encode(piece, chunked=chunked) for piece in pieces]), last=whole)
        if moved is not None:
            moved()
