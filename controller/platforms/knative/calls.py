"""The requests that this controller has sent and that last, by function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Calls:
    """Counts requests. ``on_change`` is told the function whose requests have become more or fewer."""

    def __init__(self, clock: Callable[[], float], *, on_change: Callable[[str], None] = lambda function: None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._sent_at: dict[str, dict[int, float]] = {}
        self._next = 0

    def sent_at(self, function: str) -> tuple[float, ...]:
        """Unix seconds at which the function's requests in flight were sent."""
        return tuple(self._sent_at.get(function, {}).values())

    def count(self, function: str) -> int:
        """Requests in flight, those that wait for a replica included."""
        return len(self._sent_at.get(function, {}))

    @contextmanager
    def counted(self, function: str) -> Iterator[None]:
        """Count one request while the context lasts."""
        number, self._next = self._next, self._next + 1
        self._sent_at.setdefault(function, {})[number] = self._clock()
        self._on_change(function)
        try:
            yield
        finally:
            del self._sent_at[function][number]
            self._on_change(function)
