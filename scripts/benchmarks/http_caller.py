"""A caller for measurements: one kept-alive connection, with no code of what is measured."""

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class AnswerCut(Exception):
    """The connection ended in the middle of an answer."""


class HttpCaller:
    """Sends requests one after another."""

    def __init__(self, port: int, host: str) -> None:
        """``port`` on this machine; ``host`` is the function's name."""
        self._port = port
        self._host = host
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, target: str, body: bytes, *, request_id: str = "") -> Answer:
        """One request, on a new connection where the last one was closed.

        Raises ``AnswerCut``, and ``OSError`` or ``EOFError`` where no answer began.
        """
        if self._reader is None or self._writer is None or self._reader.at_eof() or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = (
            f"POST {target} HTTP/1.1\r\nhost: {self._host}\r\nx-id: {request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        status_line, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        try:
            content = await self._reader.readexactly(int(headers["content-length"]))
        except (OSError, EOFError) as error:
            raise AnswerCut from error
        return Answer(status=int(status_line.split()[1]), headers=headers, body=content)

    async def hears_more(self, within_s: float) -> bool:
        """Whether bytes come that no request asked for."""
        if self._reader is None:
            return False
        try:
            async with asyncio.timeout(within_s):
                return bool(await self._reader.read(1))
        except TimeoutError:
            return False

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
