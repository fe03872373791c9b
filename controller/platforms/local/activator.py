"""The central queue of a revision: buffering at zero, the concurrency limit, first come first served.

Source: knative/serving ``pkg/activator/net/throttler.go``. No network and no clock here; a caller that gives up
cancels its ``acquire``.
"""

import asyncio
from collections import deque
from random import Random
from typing import Generic, TypeVar

from controller.platforms.local.load_balancing import (
    FIRST_AVAILABLE_UP_TO,
    first_available,
    round_robin,
    two_choices,
)

Replica = TypeVar("Replica")


class QueueFull(Exception):
    """Too many requests wait for this function."""


class TurnedAway(Exception):
    """The function was released or stopped while the request waited."""


class Activator(Generic[Replica]):
    """Slots of the ready replicas and the requests that wait for one. It knows only what passes through it."""

    def __init__(self, *, container_concurrency: int, queue_limit: int, random: Random) -> None:
        self._container_concurrency = container_concurrency
        self._queue_limit = queue_limit
        self._random = random
        self._open: list[Replica] = []
        self._in_flight: dict[Replica, int] = {}
        self._waiting: deque[asyncio.Future[Replica]] = deque()
        self._next_turn = 0

    @property
    def num_queued(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    def add(self, replica: Replica) -> None:
        """A replica is ready: it takes requests from now on."""
        if replica not in self._open:
            self._open.append(replica)
        self._in_flight.setdefault(replica, 0)
        self._hand_out()

    def remove(self, replica: Replica) -> None:
        """A replica drains or has ended: it gets no new requests, those it has go on."""
        if replica in self._open:
            self._open.remove(replica)
        if not self._in_flight.get(replica):
            self._in_flight.pop(replica, None)

    async def acquire(self) -> Replica:
        """A slot on a replica, in the order of arrival. Raises ``QueueFull`` or ``TurnedAway``."""
        # Whoever waits has been given what was free, so a newcomer overtakes nobody.
        free = self._pick()
        if free is not None:
            return self._take(free)
        if len(self._waiting) >= self._queue_limit:
            raise QueueFull
        slot: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            return await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self.release(slot.result())
            elif slot in self._waiting:
                self._waiting.remove(slot)
            raise

    def release(self, replica: Replica) -> None:
        """A request has left its replica."""
        self._in_flight[replica] -= 1
        if replica not in self._open and not self._in_flight[replica]:
            del self._in_flight[replica]
        self._hand_out()

    def turn_away(self) -> None:
        """Let nobody wait any longer."""
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_exception(TurnedAway())

    def _hand_out(self) -> None:
        while self._waiting:
            slot = self._waiting[0]
            if slot.done():  # cancelled, its owner has not run yet
                self._waiting.popleft()
                continue
            free = self._pick()
            if free is None:
                return
            self._waiting.popleft()
            slot.set_result(self._take(free))

    def _take(self, replica: Replica) -> Replica:
        self._in_flight[replica] += 1
        return replica

    def _pick(self) -> Replica | None:
        """The replica for the next request, None where all are at their limit."""
        limit = self._container_concurrency
        in_flight = [self._in_flight[replica] for replica in self._open]
        if not limit:
            chosen = two_choices(in_flight, self._random)
        elif limit <= FIRST_AVAILABLE_UP_TO:
            chosen = first_available(in_flight, limit)
        else:
            chosen = round_robin(in_flight, limit, self._next_turn)
        if chosen is None:
            return None
        self._next_turn = chosen + 1
        return self._open[chosen]
