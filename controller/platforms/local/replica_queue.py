"""One replica's own queue: Knative's queue-proxy beside each container.

Source: knative/serving ``pkg/queue/breaker.go``: as many requests at once as the concurrency limit, ten times as many
waiting, 503 for more. No clock here; a caller that gives up cancels its ``enter``.
"""

import asyncio
from collections import deque

from controller.platforms.local.activator import QueueFull, TurnedAway

_WAITING_PER_SLOT = 10


class ReplicaLost(Exception):
    """The replica ended while the request waited for it; it has not seen the request."""


class ReplicaQueue:
    """The requests that one replica works on, and those that wait for it."""

    def __init__(self, concurrency: int) -> None:
        """``concurrency`` 0: no limit."""
        self._concurrency = concurrency
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.num_running = 0
        """Requests that it works on."""

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def num_requests(self) -> int:
        """Both."""
        return self.num_running + self.num_waiting

    async def enter(self) -> None:
        """Return when the replica may work on the request; ``leave`` follows.

        Raises ``QueueFull``, ``TurnedAway`` or ``ReplicaLost``.
        """
        if self._closed:
            raise ReplicaLost
        if not self._concurrency or self.num_running < self._concurrency:
            self.num_running += 1
            return
        if len(self._waiting) >= _WAITING_PER_SLOT * self._concurrency:
            raise QueueFull
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def leave(self) -> None:
        """A request is done: its place goes to the next."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.num_running -= 1

    def turn_away(self) -> None:
        """Let nobody wait any longer."""
        self._fail_waiting(TurnedAway)

    def close(self) -> None:
        """The replica is gone: whoever waits, or comes, has to look elsewhere."""
        self._closed = True
        self._fail_waiting(ReplicaLost)

    def _fail_waiting(self, reason: type[Exception]) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(reason())
