"""The process that serves: how it shows in its replies, and what its calls share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

from shared.store.base import Store
from shared.store.blobs import BlobStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of a function. Times are Unix seconds."""

    instance: str
    revision: str
    started_at: float
    ready_at: float
    store: Store
    blobs: BlobStore
    executor: Executor
    """The one compute thread."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Admits one exclusive call at a time, of whatever stage, in order of arrival."""

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a computation on the compute thread, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)
