"""Whether a call is still wanted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from shared.contracts.errors import Cancelled
from shared.service.beside import beside


class StopFlag:
    """Tells a computation that its result is no longer wanted. Set on the event loop, readable from any thread."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""
        """Why to stop; empty while there is no reason to."""

    def set(self, reason: str) -> None:
        """Ask to stop; the first reason counts."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def raise_if_set(self) -> None:
        """Raise ``Cancelled`` with the reason, if there is one."""
        if self._event.is_set():
            raise Cancelled(f"the call was stopped: {self.reason}")

    @contextlib.asynccontextmanager
    async def interrupting(self) -> AsyncIterator[None]:
        """Cancel what the block waits for as soon as the flag is set, and raise ``Cancelled``."""
        try:
            async with asyncio.timeout(None) as scope, beside(self._expire(scope)):
                yield
        except TimeoutError:
            self.raise_if_set()
            raise

    async def _expire(self, scope: asyncio.Timeout) -> None:
        await self._event.wait()
        scope.reschedule(asyncio.get_running_loop().time())
