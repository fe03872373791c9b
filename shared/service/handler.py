"""What a stage brings to the protocol: a typed function of references, and the means it may use."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from shared.contracts.call import InputsT, OutputsT, StageCall
from shared.contracts.errors import Cancelled
from shared.contracts.stage import Stage
from shared.store.base import Store
from shared.store.blobs import BlobStore

T = TypeVar("T")


class StopFlag:
    """Tells a computation that its result is no longer wanted. Readable from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
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


@dataclass(slots=True, kw_only=True)
class Stopwatch:
    """Adds up where a call's time goes, in seconds."""

    load_s: float = 0.0
    compute_s: float = 0.0
    store_s: float = 0.0

    def measure(self, kind: Literal["load", "compute", "store"]) -> "Lap":
        """A context that adds its duration to ``kind``."""
        return Lap(self, kind)


class Lap:
    """One measured stretch of a stopwatch."""

    def __init__(self, watch: Stopwatch, kind: str) -> None:
        self._watch, self._field, self._began = watch, f"{kind}_s", 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self._began
        setattr(self._watch, self._field, getattr(self._watch, self._field) + spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a handler may use while it works on one call."""

    store: Store
    blobs: BlobStore
    owner: str
    """Name of this attempt: holds the claim and the leases."""
    instance: str
    deadline_at: float
    """Unix seconds."""
    stop: StopFlag
    watch: Stopwatch
    executor: Executor
    """The process's one compute thread."""

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a computation on the compute thread, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)

    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline_at - time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[OutputsT]):
    """What a handler hands back to the protocol."""

    outputs: OutputsT
    status: Literal["done", "continue"] = "done"
    metrics: dict[str, float] = field(default_factory=dict)
    policy_version: int | None = None
    weights_digest: str | None = None


class StageHandler(Protocol[InputsT, OutputsT]):
    """One stage. It is pure in its references: all state it keeps between calls is a cache."""

    stage: ClassVar[Stage]
    exclusive: ClassVar[bool]
    """Whether its calls need the replica for themselves (they use the compute thread for long)."""

    @property
    def inputs(self) -> type[InputsT]:
        """The contract of its inputs."""
        ...

    @property
    def outputs(self) -> type[OutputsT]:
        """The contract of its outputs."""
        ...

    async def handle(self, call: StageCall[InputsT], context: CallContext) -> Outcome[OutputsT]:
        """Work on the call. Raises ``StageError``; answers ``continue`` near the deadline."""
        ...

    async def close(self) -> None:
        """Free what the handler holds; the process is about to end."""
        ...
