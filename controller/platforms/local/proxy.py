"""The front door of all functions: HTTP/1.1 on one port, routed by host, passed on piece by piece.

It stands for Knative's ingress, activator and queue-proxy together: waits for a replica's slot, counts the timeouts
from the arrival, answers 404, 502, 503 and 504 in the function's place, and lets go of the slot and of the replica's
connection as soon as the caller is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import h11

from controller.platforms.local.activator import QueueFull, TurnedAway
from controller.platforms.local.http_stream import BrokenStream, HttpStream
from controller.platforms.local.proxy_answers import answer_broken, answer_instead, discard_body
from controller.platforms.local.proxy_deadlines import Deadlines
from controller.platforms.local.proxy_exchange import pass_on
from controller.platforms.local.proxy_headers import addressed, answer_to_probe

logger = logging.getLogger(__name__)


class Routed(Protocol):
    """What a request can be routed to. ``Deadlines`` has what its limits mean."""

    @property
    def timeout_s(self) -> float:
        """Longest time of a whole request."""
        ...

    @property
    def response_start_timeout_s(self) -> float:
        """Longest time to the first byte of the answer; 0: no limit of its own."""
        ...

    @property
    def idle_timeout_s(self) -> float:
        """Longest time without a byte of the answer; 0: no limit."""
        ...

    def admit(self) -> AbstractAsyncContextManager[HttpStream]:
        """Wait for a slot on a replica and hold it, with a connection. Raises ``QueueFull`` or ``TurnedAway``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a request goes, and the target it has there."""

    function: Routed
    target: bytes


class PortInUse(Exception):
    """The proxy's address cannot be listened on."""


class Proxy:
    """Accepts connections and serves the requests of each in turn."""

    def __init__(self, route: Callable[[str, bytes], Route | None]) -> None:
        """``route``: host header and target to a function, None where there is none."""
        self._route = route
        self._callers: set[_Caller] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes any free one. Returns the port. Raises ``PortInUse``."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Caller(self._serve, self._callers), host, port, backlog=_BACKLOG
            )
        except OSError as error:
            raise PortInUse(
                f"cannot listen on {host}:{port} ({error.strerror}); choose another port or end what listens there"
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        if self._server is None:
            return
        self._server.close()
        callers = list(self._callers)
        for caller in callers:
            caller.serving.cancel()
            caller.abort()
        await asyncio.gather(*(caller.serving for caller in callers), return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, caller: HttpStream) -> None:
        """All requests of one connection. It is cancelled when the caller goes."""
        try:
            while (request := await caller.receive_request()) is not None:
                await self._answer(caller, request)
                if not (await discard_body(caller) and caller.next_message()):
                    break
        except BrokenStream as error:
            await answer_broken(caller, error)
        except asyncio.CancelledError:
            caller.abort()
            raise
        except Exception:
            logger.exception("a connection to the proxy failed")
            caller.abort()
        finally:
            caller.close()

    async def _answer(self, caller: HttpStream, request: h11.Request) -> None:
        host, target = addressed(request)
        name = host.decode("latin-1")
        route = self._route(name, target)
        if route is None:
            await answer_instead(caller, 404, f"no function for host {name!r} and this path")
            return
        probed = answer_to_probe(request.headers)
        if probed is not None:
            await answer_instead(caller, *probed)
            return
        try:
            await _admit_and_pass_on(caller, request, host, route)
        except QueueFull:
            await answer_instead(caller, 503, "pending request queue full")
        except TurnedAway:
            await answer_instead(caller, 503, "the function was released while the request waited")
        except TimeoutError:
            await answer_instead(caller, 504, "activator request timeout")
        except BrokenStream as error:
            if error.stream is caller:
                raise
            await answer_instead(caller, 502, f"the replica failed: {error}")


async def _admit_and_pass_on(caller: HttpStream, request: h11.Request, host: bytes, route: Route) -> None:
    """Wait for a replica and let it answer. Raises as ``Routed.admit`` and ``pass_on`` do, and ``TimeoutError``."""
    function, clock = route.function, asyncio.get_running_loop().time
    deadlines = Deadlines(
        arrival=clock(),
        timeout_s=function.timeout_s,
        response_start_timeout_s=function.response_start_timeout_s,
        idle_timeout_s=function.idle_timeout_s,
    )
    async with asyncio.timeout_at(deadlines.for_first_byte) as limit, function.admit() as replica:

        def answer_moved() -> None:
            deadline = deadlines.for_next_byte(clock())
            if limit.when() != deadline:
                limit.reschedule(deadline)

        await pass_on(caller, request, host, route.target, replica, answer_moved)


_BACKLOG = 1024
"""Connections that may wait to be accepted: hundreds of callers may come in the same moment."""


class _Caller(HttpStream):
    """A caller's connection, served by a task that ends with it, also while it waits for something else.

    A caller that closes its sending side counts as gone, as with Go's server.
    """

    def __init__(self, serve: Callable[[HttpStream], Coroutine[Any, Any, None]], callers: "set[_Caller]") -> None:
        super().__init__(h11.SERVER)
        self._serve = serve
        self._callers = callers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._callers.add(self)
        self.serving = asyncio.get_running_loop().create_task(self._serve(self))

    def eof_received(self) -> bool | None:
        self.serving.cancel()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.serving.cancel()
        self._callers.discard(self)
        super().connection_lost(exc)
