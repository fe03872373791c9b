"""Whether there is time for one more micro-batch before a call's deadline, by the pace of those before it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from shared.contracts.errors import StageError

PassKind = Literal["scoring", "training"]
"""Forward only, or forward and backward."""

MAX_IDLE_CALLS = 2
BACKWARD_FACTOR = 3.0
"""Forward and backward in units of forward alone."""


class Budget(Protocol):
    """Decides between two micro-batches whether a call goes on."""

    def fits(self, kind: PassKind, num_tokens: int) -> bool:
        """Whether a micro-batch of so many tokens may begin."""
        ...

    def measure(self, kind: PassKind, num_tokens: int) -> AbstractContextManager[None]:
        """Take the time of one."""
        ...


class Unlimited:
    """All the time in the world."""

    def fits(self, kind: PassKind, num_tokens: int) -> bool:
        """Always."""
        return True

    def measure(self, kind: PassKind, num_tokens: int) -> AbstractContextManager[None]:
        """Nobody wants to know."""
        return contextlib.nullcontext()


UNLIMITED = Unlimited()


@dataclass(slots=True, kw_only=True)
class Pace:
    """How fast this process is, as far as it knows."""

    s_per_token: dict[PassKind, float] = field(default_factory=dict)
    """Of the latest micro-batch of each kind."""
    store_s: float = 0.0
    """What the latest end of a call took: weights, optimizer state and gradients on their way to the store."""

    def of(self, kind: PassKind) -> float | None:
        """Seconds per token of such a micro-batch, from those of the other kind if need be; None without any."""
        for known, passes in ((kind, 1.0), ("scoring", BACKWARD_FACTOR), ("training", 1.0 / BACKWARD_FACTOR)):
            if known in self.s_per_token:
                return passes * self.s_per_token[known]
        return None

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """Take the time of a call's end."""
        began = time.perf_counter()
        yield
        self.store_s = time.perf_counter() - began

    def refuse_endless(
        self, num_idle: int, kind: PassKind, max_token_len: int, error: type[StageError], *, setting: str, stage: str
    ) -> None:
        """Raises the error where two calls in a row had no time for one micro-batch: no later one will have.

        One alone may have come late, after a queue or a cold start.
        """
        if num_idle < MAX_IDLE_CALLS:
            return
        pass_s = (self.of(kind) or 0.0) * max_token_len
        raise error(
            f"one micro-batch does not fit into a call: {max_token_len} tokens take about {pass_s:.0f} s here, and "
            f"storing the result {self.store_s:.0f} s; set a smaller {setting}, or a longer timeoutSeconds of the "
            f"{stage}"
        )


class TimeBudget:
    """A call's. The first micro-batch of an unknown pace always fits: somebody has to measure it."""

    def __init__(self, pace: Pace, remaining_s: Callable[[], float], is_stopped: Callable[[], bool]) -> None:
        self._pace = pace
        self._remaining_s = remaining_s
        self._is_stopped = is_stopped

    def fits(self, kind: PassKind, num_tokens: int) -> bool:
        """Not when the call was stopped, nor when computing and storing would end after the deadline."""
        if self._is_stopped():
            return False
        s_per_token = self._pace.of(kind)
        if s_per_token is None:
            return True
        return s_per_token * num_tokens + self._pace.store_s <= self._remaining_s()

    @contextlib.contextmanager
    def measure(self, kind: PassKind, num_tokens: int) -> Iterator[None]:
        """Learn the pace. One that fails teaches nothing."""
        began = time.perf_counter()
        yield
        self._pace.s_per_token[kind] = (time.perf_counter() - began) / num_tokens
