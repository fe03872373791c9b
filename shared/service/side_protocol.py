"""Another protocol that a stage answers beside ours, under a path of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.service.auth import TokenAuth
from shared.service.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class SideProtocol:
    """An application and the paths that are its own."""

    prefix: str
    """``/v2`` stands for itself and for all below it."""
    app: ASGIApp
    open_paths: frozenset[str]
    """Paths that need no token: health."""
    refusal: Callable[[], Response]
    """The answer to a caller without the token, as this protocol's clients read it."""


@runtime_checkable
class SpeaksMore(Protocol):
    """A stage's handler that brings such a protocol."""

    def side_protocol(self, replica: Replica) -> SideProtocol:
        """The protocol, served by this replica."""
        ...


class BySide:
    """ASGI middleware that gives a side protocol its requests, behind the same token."""

    def __init__(self, app: ASGIApp, *, protocol: SideProtocol, token: str) -> None:
        self._app = app
        self._prefix = protocol.prefix
        self._side = TokenAuth(protocol.app, token=token, open_paths=protocol.open_paths, refusal=protocol.refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to one of both."""
        is_side = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._prefix}/")
        await (self._side if is_side else self._app)(scope, receive, send)
