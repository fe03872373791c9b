"""Free ports for replicas, below the range the kernel takes for outgoing connections."""

import itertools
import socket

FIRST_PORT = 20000
LAST_PORT = 31999


class NoFreePort(Exception):
    """Every port of the range is taken."""


class PortPool:
    """Hands out each free port in turn, so that one just given back is not taken again at once.

    Two controllers on one machine never give out the same port: until a replica listens, an abstract socket named
    after the port stands for it, which only one process can bind and which ends with that process.
    """

    def __init__(self, first: int = FIRST_PORT, last: int = LAST_PORT) -> None:
        self._candidates = itertools.cycle(range(first, last + 1))
        self._num_candidates = last - first + 1
        self._claims: dict[int, socket.socket] = {}

    def take(self) -> int:
        """A port that nobody listens on or has claimed. Raises ``NoFreePort``."""
        for port in itertools.islice(self._candidates, self._num_candidates):
            claim = _claim(port)
            if claim is not None:
                self._claims[port] = claim
                return port
        raise NoFreePort(f"all {self._num_candidates} ports for replicas are in use; end other processes that listen")

    def give_back(self, port: int) -> None:
        """The replica that was to listen there is gone."""
        self._claims.pop(port).close()


def _claim(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0rlhfless-port-{port}")
        with socket.socket() as attempt:
            attempt.bind(("0.0.0.0", port))
    except OSError:
        claim.close()
        return None
    return claim
