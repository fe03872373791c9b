"""Free ports for replicas, below the range the kernel takes for outgoing connections."""

import itertools
import random
import socket

FIRST_PORT = 20000
LAST_PORT = 31999


class NoFreePort(Exception):
    """Every port of the range is taken."""


class PortPool:
    """Hands out each free port in turn, so that one just given back is not taken again at once."""

    def __init__(self, first: int = FIRST_PORT, last: int = LAST_PORT) -> None:
        # Two controllers that start at once must not give the same port to a replica of each: whichever listened
        # first would be taken for both.
        start = random.randint(first, last)
        self._candidates = itertools.cycle([*range(start, last + 1), *range(first, start)])
        self._num_candidates = last - first + 1

    def take(self) -> int:
        """A port that nobody listens on now. Raises ``NoFreePort``."""
        for port in itertools.islice(self._candidates, self._num_candidates):
            with socket.socket() as attempt:
                try:
                    attempt.bind(("0.0.0.0", port))
                except OSError:
                    continue
                return port
        raise NoFreePort(
            f"all {self._num_candidates} ports for replicas are in use; end other processes that listen"
        )
