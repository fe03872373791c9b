"""What the tests of the local platform share."""

import socket
from collections.abc import Callable

import pytest


@pytest.fixture
def unused_port() -> Callable[[], int]:
    """A port that nobody listens on."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
            return port

    return find
