"""What a stage brings to the protocol: a typed function of references, and the means it may use."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from shared.contracts.call import InputsT, OutputsT, StageCall
from shared.contracts.stage import Stage
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.base import Store
from shared.store.blobs import BlobStore

T = TypeVar("T")


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
