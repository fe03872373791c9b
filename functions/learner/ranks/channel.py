"""Messages between the serving process and one of its ranks, over a socket that only these two have.

A message is JSON and, behind it, blobs of bytes (safetensors or nothing). Nothing is unpickled.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LENGTH_BYTES = 8


class ChannelClosed(Exception):
    """The other side is gone."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent at once."""

    body: Mapping[str, Any]
    blobs: Sequence[bytes] = ()


class Channel:
    """One end. Blocking: for threads that have nothing else to do."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: Message) -> None:
        """Send it whole. Raises ``ChannelClosed``."""
        head = json.dumps({"body": message.body, "sizes": [len(blob) for blob in message.blobs]}).encode()
        try:
            self._connection.sendall(len(head).to_bytes(LENGTH_BYTES, "little") + head)
            for blob in message.blobs:
                self._connection.sendall(blob)
        except OSError as error:
            raise ChannelClosed(f"the other side is gone: {error}") from error

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises ``ChannelClosed``, and ``TimeoutError`` where its beginning does not come."""
        self._connection.settimeout(timeout_s)
        length = self._read(LENGTH_BYTES)
        self._connection.settimeout(None)
        head = json.loads(self._read(int.from_bytes(length, "little")))
        return Message(head["body"], tuple(bytes(self._read(size)) for size in head["sizes"]))

    def close(self) -> None:
        """The other side then reads an end."""
        self._connection.close()

    def _read(self, num_bytes: int) -> bytearray:
        data = bytearray(num_bytes)
        view = memoryview(data)
        while view:
            try:
                num_read = self._connection.recv_into(view)
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosed(f"the other side is gone: {error}") from error
            if num_read == 0:
                raise ChannelClosed("the other side is gone")
            view = view[num_read:]
        return data
